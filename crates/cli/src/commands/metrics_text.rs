//! Metrics in the text format of Prometheus.

use std::fmt::Write as _;

use larder_store::StoreStats;

/// Whether a metric only rises.
#[derive(Clone, Copy)]
pub(in crate::commands) enum Kind {
    Counter,
    Gauge,
}

/// The text of metrics whose names begin with the same words.
pub(in crate::commands) struct MetricsText {
    prefix: &'static str,
    text: String,
}

impl MetricsText {
    /// No metrics yet. Names begin with `prefix`.
    pub(in crate::commands) fn new(prefix: &'static str) -> Self {
        Self { prefix, text: String::new() }
    }

    /// One metric with its samples: labels and values. One without samples is left out.
    pub(in crate::commands) fn metric(&mut self, name: &str, help: &str, kind: Kind, samples: &[(String, f64)]) {
        if samples.is_empty() {
            return;
        }
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let prefix = self.prefix;
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(self.text, "{prefix}{name}{labels} {value}");
        }
    }

    /// A counter without labels.
    pub(in crate::commands) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.metric(name, help, Kind::Counter, &[(String::new(), value as f64)]);
    }

    /// A gauge without labels.
    pub(in crate::commands) fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.metric(name, help, Kind::Gauge, &[(String::new(), value as f64)]);
    }

    /// Requests to the storage.
    pub(in crate::commands) fn requests(&mut self, requests: &StoreStats) {
        let kinds = [
            ("create", requests.creates),
            ("read", requests.reads + requests.sizes),
            ("list", requests.lists),
            ("delete", requests.deletes),
        ];
        let kinds = kinds.map(|(kind, count)| (labels(&[("kind", kind)]), count as f64));
        self.metric("requests_total", "Requests to the storage.", Kind::Counter, &kinds);
        self.counter("request_failures_total", "Requests that failed.", requests.failures);
        self.counter("sent_bytes_total", "Bytes of objects sent.", requests.bytes_up);
        self.counter("received_bytes_total", "Bytes of objects received.", requests.bytes_down);
    }

    /// The whole text.
    pub(in crate::commands) fn end(self) -> String {
        self.text
    }
}

/// Labels of a sample: `{name="value"}`.
pub(in crate::commands) fn labels(labels: &[(&str, &str)]) -> String {
    let escaped = |value: &str| value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", labels.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        assert_eq!(labels(&[("name", "a\"b\\c\nd"), ("x", "")]), r#"{name="a\"b\\c\nd",x=""}"#);
    }

    #[test]
    fn a_metric_has_its_help_and_type_before_its_samples() {
        let mut text = MetricsText::new("larder_volume_");
        text.counter("things_total", "Things.", 7);
        text.metric("nothing", "No samples.", Kind::Gauge, &[]);
        let expected = "# HELP larder_volume_things_total Things.\n# TYPE larder_volume_things_total counter\n\
                        larder_volume_things_total 7\n";
        assert_eq!(text.end(), expected);
    }
}
