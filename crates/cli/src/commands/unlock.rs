//! `larder unlock`: exists for scripts and users of other programs, and explains that there is
//! nothing to do.

use serde_json::json;

use crate::app::App;
use crate::exit::Exit;
use crate::failure::Failure;

const WHY: &str = "there is nothing to unlock: Larder has no locks. Backups, restores and checks of one repository all run at once, \
                   and a run that died leaves nothing behind that could stop the next one.";

pub(super) fn run(app: &App) -> Result<Exit, Failure> {
    if app.out.is_json() {
        app.out.json(&json!({"message_type": "summary", "message": WHY}))?;
    } else {
        app.out.info(WHY)?;
    }
    Ok(Exit::Done)
}
