//! The log of the program: off by default, because everything that users must know is an error or a
//! warning.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::Mutex;

use larder_job::{Clock, SystemClock};
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::args::Global;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Output, json_line};
use crate::time;

/// Starts the log as the options say.
pub(crate) fn start(global: &Global, out: &Output) -> Result<(), Failure> {
    let by_flags = match (global.verbose, &global.log_file) {
        (0..=1, None) => "off",
        (0..=1, Some(_)) => "info",
        (2, _) => "info",
        (_, _) => "debug",
    };
    let level = global.log_level.as_deref().unwrap_or(by_flags);
    if level == "off" {
        return Ok(());
    }
    let wrong = || Failure::usage(format!("{level:?} is not a log level; use off, error, warn, info, debug or trace"));
    // A single word that is no level would be taken for the name of a module, and the log would be
    // empty.
    if !level.contains(['=', ',']) && level.parse::<LevelFilter>().is_err() {
        return Err(wrong());
    }
    // The library of times logs while it finds its time zones, which the lines of this log need.
    let without_times = "jiff=off".parse().map_err(|_| wrong())?;
    let filter = EnvFilter::try_new(level).map_err(|_| wrong())?.add_directive(without_times);
    let builder = tracing_subscriber::fmt().with_env_filter(filter);
    let started = match &global.log_file {
        Some(path) => {
            let file = File::options().create(true).append(true).open(path).map_err(|error| {
                Failure::of(Exit::Failed, &error).while_doing(&format!("cannot write to {}", path.display()))
            })?;
            builder.with_ansi(false).with_writer(Mutex::new(file)).try_init()
        }
        // Programs read standard error line by line, and every line of it is JSON.
        None if out.is_json() => {
            let out = out.clone();
            builder.event_format(JsonLines).with_writer(move || BesideProgress(out.clone())).try_init()
        }
        None => {
            let (out, is_terminal) = (out.clone(), out.stderr_is_terminal());
            builder.with_ansi(is_terminal).with_writer(move || BesideProgress(out.clone())).try_init()
        }
    };
    // Only a test could have started it before.
    drop(started);
    Ok(())
}

/// Events as messages of `--json`.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        writeln!(writer, "{}", json_line(&message(event)))
    }
}

fn message(event: &Event<'_>) -> Value {
    let mut fields = Fields::default();
    event.record(&mut fields);
    let Fields { message, others } = fields;
    json!({
        "message_type": "log",
        "time": time::rfc3339(SystemClock.now_ms()),
        "level": event.metadata().level().as_str().to_ascii_lowercase(),
        "target": event.metadata().target(),
        "message": message,
        "fields": others,
    })
}

/// The text of an event.
#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => drop(self.others.insert(name.to_owned(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, json!(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, json!(value));
    }
}

/// Standard error, with progress on a terminal's last lines removed meanwhile.
struct BesideProgress(Output);

impl Write for BesideProgress {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The reader of the log is gone. That must not end the command, as the library would with
        // an error.
        let _ = self.0.beside_bar(|| io::stderr().lock().write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reports a bug of this program in one or two lines.
pub(crate) fn report_bug(info: &PanicHookInfo<'_>) {
    let what = info.payload_as_str().unwrap_or("no message").replace('\n', " ");
    let place = info.location().map_or_else(String::new, |place| format!(" at {}:{}", place.file(), place.line()));
    // There is nowhere to report that errors cannot be reported.
    let _ = writeln!(
        io::stderr().lock(),
        "larder: this is a bug in larder {}: {what}{place}\n        what was committed is intact; please report these two lines",
        env!("CARGO_PKG_VERSION")
    );
}
