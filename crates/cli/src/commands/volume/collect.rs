//! `larder volume collect`.

use super::request::Request;
use super::target::ask;
use crate::app::App;
use crate::args::VolumeCollectArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::sizes;

pub(super) fn run(app: &App, args: &VolumeCollectArgs) -> Result<Exit, Failure> {
    let value = ask(app, &args.store, &args.password, &Request::Collect { until_free: args.until_free })?;
    if app.out.is_json() {
        app.out.json(&value)?;
        return Ok(Exit::Done);
    }
    let number = |name: &str| value[name].as_u64().unwrap_or_default();
    let containers = sizes::count(number("containers"), "container");
    let (freed, copied) = (sizes::show(number("bytes_freed")), sizes::show(number("bytes_copied")));
    let kept =
        if number("containers") == 0 { String::new() } else { format!("; moved {copied} of their data elsewhere") };
    app.out.info(format!("freed {containers} ({freed}){kept}"))?;
    Ok(Exit::Done)
}
