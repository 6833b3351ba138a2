//! One module for each experiment of the paper's section VII.

mod data;
mod fig10;
mod fig5;
mod fig6;
mod fig7;
mod fig8;
mod fig9;
mod pass;
mod rates;
mod s3;

pub(crate) use data::data;
pub(crate) use fig5::fig5;
pub(crate) use fig6::fig6;
pub(crate) use fig7::fig7;
pub(crate) use fig8::fig8;
pub(crate) use fig9::fig9;
pub(crate) use fig10::fig10;
pub(crate) use pass::pass;
pub(crate) use rates::rates;
pub(crate) use s3::s3;

use larder_bench_common::megabytes;
use larder_bench_common::page::Page;

use crate::Settings;
use crate::backup::Outcome;
use crate::sdb::{Duplication, SELF_REFERENCE, Spec};

/// An experiment's page, in the folder of the settings.
fn begin_page(name: &str, title: &str, settings: &Settings) -> anyhow::Result<Page> {
    let Settings { scale, seed, versions, out, .. } = settings;
    Page::new(name, title, &format!("Scale {scale}, seed {seed}, at most {versions} versions"), out)
}

/// The paper's data at this scale: so many files of so many MiB.
fn spec(settings: &Settings, files: usize, file_mib: f64, duplication: Duplication) -> Spec {
    let file_bytes = (file_mib * settings.scale * f64::from(1 << 20)) as usize;
    Spec { files, file_bytes, duplication, self_reference: SELF_REFERENCE, seed: settings.seed }
}

/// How often the same work is timed. The least time counts: whoever else uses the machine only adds to it.
const REPEATS: usize = 3;

/// Memory for indexes, as `larder backup` has by default on a machine of this kind.
const INDEX_MEMORY: usize = 256 << 20;

/// MB a second of real CPU time.
fn throughput(outcome: &Outcome) -> f64 {
    rate(outcome.bytes, outcome.stages.total().as_secs_f64())
}

fn rate(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / 1e6 / seconds.max(1e-9)
}
