//! `larder volume create`.

use super::request::Request;
use super::target::ask;
use super::{from, split};
use crate::app::App;
use crate::args::VolumeCreateArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::sizes;

pub(super) fn run(app: &App, args: &VolumeCreateArgs) -> Result<Exit, Failure> {
    let (folder, name) = split(&args.volume)?;
    if let Some(from) = &args.from.from {
        return from::create(app, &folder, &name, from, &args.from);
    }
    if args.from.copy || !args.from.filter.is_empty() {
        return Err(Failure::usage("--copy, --host, --tag, --path and --series need --from"));
    }
    let request = match (&args.clone, args.size) {
        (Some(of), _) => Request::Clone { name: name.clone(), of: of.clone() },
        (None, Some(size)) => Request::Create { name: name.clone(), size },
        (None, None) => return Err(Failure::usage("a new volume needs SIZE, --clone or --from")),
    };
    let value = ask(app, &folder, &args.from.password, &request)?;
    if app.out.is_json() {
        app.out.json(&value)?;
    } else {
        let size = value["size"].as_u64().unwrap_or_default();
        app.out.info(format!("volume {name} of {} created", sizes::show(size)))?;
    }
    Ok(Exit::Done)
}
