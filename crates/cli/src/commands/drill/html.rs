//! The report of a drill as a page of HTML that needs no other file.

use std::fmt::Write as _;

use super::report::{Drilled, Report, label, per_second};
use crate::output::absolute;
use crate::{sizes, time};

const STYLE: &str = "body{font:15px sans-serif;margin:2em;max-width:70em}table{border-collapse:collapse;margin:1em 0}\
                     td,th{border:1px solid #999;padding:.3em .6em;text-align:left;vertical-align:top}\
                     .passed{color:#060}.incomplete{color:#850}.failed{color:#a00}code{word-break:break-all}";

/// The page.
pub(super) fn render(report: &Report) -> String {
    let mut page = String::new();
    let result = report.result();
    // Writing to a string cannot fail.
    let _ = writeln!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Restore drill: {result}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>Restore drill: <span class=\"{result}\">{result}</span></h1>\n<table>"
    );
    let cost = report.cost().zip(report.prices.as_ref());
    let cost = cost.map(|(cost, prices)| format!("{cost:.4} {} ({})", prices.currency, prices.basis));
    for (name, value) in [
        ("Time", time::rfc3339(report.time_ms)),
        ("Host", report.host.clone()),
        ("Repository", report.repository.clone()),
        ("Program", format!("larder {}", env!("CARGO_PKG_VERSION"))),
        ("Sample", format!("{} of each snapshot, seed {}", report.sample_text(), report.seed)),
        ("Method", method(report)),
        ("Duration", format!("{:.1} s", report.seconds)),
        ("Requests", report.requests.requests().to_string()),
        ("Fetched", sizes::show(report.requests.bytes_down)),
        ("Cost", cost.unwrap_or_else(|| "no price is known".to_owned())),
    ] {
        let _ = writeln!(page, "<tr><th>{name}</th><td>{}</td></tr>", escaped(&value));
    }
    page.push_str("</table>\n");
    for (list, class, what) in
        [(&report.failed, "failed", "cannot be read"), (&report.unfinished, "incomplete", "was not finished")]
    {
        for (snapshot, failure) in list {
            let (series, id) = (escaped(&snapshot.series), snapshot.id.short());
            let _ = writeln!(
                page,
                "<h2>{series}</h2>\n<p class=\"{class}\">Snapshot {id} {what}: {}</p>",
                escaped(&failure.message)
            );
        }
    }
    report.snapshots.iter().for_each(|drilled| snapshot(drilled, &mut page));
    page.push_str("</body>\n</html>\n");
    page
}

fn method(report: &Report) -> String {
    let how = if report.writes { "restored into a scratch folder and read back" } else { "read without writing" };
    let live = if report.compares { "; compared with live files" } else { "" };
    format!("{how}{live}")
}

fn snapshot(drilled: &Drilled, page: &mut String) {
    let (named, report) = (&drilled.snapshot, &drilled.report);
    let _ = writeln!(page, "<h2>{}</h2>\n<table>", escaped(&named.series));
    let amount =
        |amount: larder_drill::Amount| format!("{}, {}", sizes::count(amount.files, "file"), sizes::show(amount.bytes));
    let all = report.seconds_for_all().map(|(low, high)| format!("{low:.0} to {high:.0} s"));
    let rate = per_second(report).map_or_else(String::new, |rate| format!(", {}/s", sizes::show(rate)));
    for (name, value) in [
        ("Snapshot", format!("{} of {}", named.id, time::rfc3339(named.time_ms))),
        ("Whole", amount(report.population)),
        ("Sample", format!("{}, {}", amount(report.sample), sizes::count(report.others, "other item"))),
        ("Restore", format!("{:.1} s{rate}", report.restore_ms as f64 / 1000.0)),
        ("Everything", all.unwrap_or_else(|| "unknown".to_owned())),
        ("Live files", format!("{} compared, {} not comparable", report.compared, report.not_comparable)),
        ("Without metadata", sizes::count(report.without_metadata, "item")),
        ("Mismatches", report.mismatches.to_string()),
        ("Failures", report.failures.to_string()),
    ] {
        let _ = writeln!(page, "<tr><th>{name}</th><td>{}</td></tr>", escaped(&value));
    }
    page.push_str("</table>\n");
    if report.findings.is_empty() {
        return;
    }
    page.push_str("<table>\n<tr><th>Finding</th><th>Item</th><th>Detail</th></tr>\n");
    for finding in &report.findings {
        let mut detail = escaped(&finding.detail);
        if let Some((source, backup)) = &finding.hashes {
            let _ = write!(detail, "<br>SHA-256 live <code>{source}</code><br>snapshot <code>{backup}</code>");
        }
        let path = escaped(&absolute(&finding.path));
        let _ =
            writeln!(page, "<tr><td>{}</td><td><code>{path}</code></td><td>{detail}</td></tr>", label(finding.kind));
    }
    page.push_str("</table>\n");
    let more = report.finding_count().saturating_sub(report.findings.len() as u64);
    if more > 0 {
        let _ = writeln!(page, "<p>And {more} more.</p>");
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
