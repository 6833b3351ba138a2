//! `larder version`.

use serde_json::json;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::restic;

pub(super) fn run(app: &App) -> Result<Exit, Failure> {
    let (version, os, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    if restic::is_on() {
        let (restic, arch) = (restic::VERSION, if arch == "x86_64" { "amd64" } else { arch });
        let text = format!("restic {restic} compatible (larder {version}) on {os}/{arch}");
        let object =
            json!({"message_type": "version", "version": restic, "go_version": "none", "go_os": os, "go_arch": arch});
        return if app.out.is_json() { app.out.json(&object) } else { app.out.line(text) }.map(|()| Exit::Done);
    }
    if app.out.is_json() {
        app.out.json(&json!({"message_type": "version", "version": version, "os": os, "arch": arch}))?;
    } else {
        app.out.line(format!("larder {version} on {os}/{arch}"))?;
    }
    Ok(Exit::Done)
}
