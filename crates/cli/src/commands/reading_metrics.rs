//! Numbers of `serve-webdav` and `serve-block` in the text format of Prometheus.

use larder_reader::FetchReport;
use larder_store::StoreStats;

use super::metrics_server::{self, MetricsServer, Render};
use super::metrics_text::{Kind, MetricsText, labels};
use crate::app::App;
use crate::failure::Failure;

/// What a server of snapshots has done.
pub(super) struct Served {
    /// When it began, in milliseconds since 1970.
    pub(super) start_ms: u64,
    /// What was fetched for clients.
    pub(super) fetched: FetchReport,
    /// Requests to the storage.
    pub(super) requests: StoreStats,
    /// Whether clients met damage.
    pub(super) met_damage: bool,
}

impl Served {
    /// The metrics that all servers have; `more` follow. Names begin with `prefix`.
    pub(super) fn render(&self, prefix: &'static str, more: impl FnOnce(&mut MetricsText)) -> String {
        let mut text = MetricsText::new(prefix);
        let version = labels(&[("version", env!("CARGO_PKG_VERSION"))]);
        text.metric("build_info", "The version of the program, as a label.", Kind::Gauge, &[(version, 1.0)]);
        let start = [(String::new(), self.start_ms as f64 / 1000.0)];
        text.metric("start_timestamp_seconds", "When the server began.", Kind::Gauge, &start);
        text.gauge("damaged", "1 once a client met damaged data.", u64::from(self.met_damage));
        let FetchReport { used, requests, bytes, disk_hits, .. } = self.fetched;
        text.counter("read_bytes_total", "Bytes of contents that were made for clients.", used);
        text.counter("container_requests_total", "Requests for parts of containers.", requests);
        text.counter("container_bytes_total", "Bytes of containers that were fetched.", bytes);
        text.counter("disk_cache_hits_total", "Parts of containers that the disk cache had.", disk_hits);
        text.requests(&self.requests);
        more(&mut text);
        text.end()
    }
}

/// Serves metrics if an address was given, and says where.
pub(super) fn start(app: &App, address: Option<&str>, render: Render) -> Result<Option<MetricsServer>, Failure> {
    let Some(address) = address else { return Ok(None) };
    let server = MetricsServer::start(metrics_server::parse_address(address)?, render)?;
    app.out.remark(&format!("metrics are at http://{}/metrics", server.address));
    Ok(Some(server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_clients_has_all_metrics() {
        let served = Served {
            start_ms: 1500,
            fetched: FetchReport { used: 9, ..FetchReport::default() },
            requests: StoreStats { lists: 2, ..StoreStats::default() },
            met_damage: true,
        };
        let text = served.render("larder_webdav_", |text| text.gauge("snapshots", "Snapshots that are shown.", 4));
        for line in [
            "larder_webdav_start_timestamp_seconds 1.5",
            "larder_webdav_damaged 1",
            "larder_webdav_read_bytes_total 9",
            "larder_webdav_requests_total{kind=\"list\"} 2",
            "larder_webdav_snapshots 4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
