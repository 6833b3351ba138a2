//! `larder version`.

use serde_json::json;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::Failure;

pub(super) fn run(app: &App) -> Result<Exit, Failure> {
    let (version, os, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    if app.out.is_json() {
        app.out.json(&json!({"message_type": "version", "version": version, "os": os, "arch": arch}))?;
    } else {
        app.out.line(format!("larder {version} on {os}/{arch}"))?;
    }
    Ok(Exit::Done)
}
