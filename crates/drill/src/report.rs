//! The facts of a drill. Words for them are chosen above.

use larder_reader::FetchReport;
use larder_store::StoreStats;

/// Findings that are kept with their paths; more are only counted.
const FINDINGS_MAX: usize = 1000;

/// A number of files, and the bytes that they have in the data stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Files.
    pub files: u64,
    /// Stored bytes, without holes.
    pub bytes: u64,
}

/// What is wrong with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FindingKind {
    /// The repository cannot give it any more.
    Damaged,
    /// It could not be restored.
    NotRestored,
    /// The restored item is not as in the snapshot.
    Differs,
    /// The live file has the size and all times of the snapshot, and other content: either of them
    /// went bad.
    SourceDiffers,
    /// The live file has the size and the modification time of the snapshot, but its inode was
    /// changed later, and it has other content.
    SourceChanged,
    /// The live file cannot be read.
    SourceUnreadable,
}

impl FindingKind {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::NotRestored => "not_restored",
            Self::Differs => "differs",
            Self::SourceDiffers => "source_differs",
            Self::SourceChanged => "source_changed",
            Self::SourceUnreadable => "source_unreadable",
        }
    }
}

/// One item with which something is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its path in the version; empty if it is not known.
    pub path: Vec<u8>,
    /// What is wrong.
    pub kind: FindingKind,
    /// One line that describes it.
    pub detail: String,
    /// SHA-256 of the live file and of the file of the snapshot, in hexadecimal.
    pub hashes: Option<(String, String)>,
}

/// A drill of one version.
#[derive(Debug, Clone, Default)]
pub struct SnapshotReport {
    /// All files of the version.
    pub population: Amount,
    /// Those of the sample.
    pub sample: Amount,
    /// Other items of the sample.
    pub others: u64,
    /// The sample is smaller than asked for, because there was no memory for more.
    pub is_limited: bool,
    /// Milliseconds that the restore took, or the reading without writing.
    pub restore_ms: u64,
    /// Requests of it.
    pub restore_requests: StoreStats,
    /// Counts of contents that it fetched.
    pub fetched: FetchReport,
    /// Live files that were compared.
    pub compared: u64,
    /// Files of the sample without a live file of the same size and time.
    pub not_comparable: u64,
    /// Items whose owners, permissions or attributes the scratch folder could not take.
    pub without_metadata: u64,
    /// Files of the sample that were not read, because they need data in cold storage.
    pub cold: u64,
    /// What is wrong, in the order in which it was found.
    pub findings: Vec<Finding>,
    /// Findings that are mismatches: the backup or its source is bad.
    pub mismatches: u64,
    /// Findings for which this machine may be the reason.
    pub failures: u64,
    /// Remarks, which are no fault.
    pub remarks: u64,
}

impl SnapshotReport {
    /// Adds a finding.
    pub(crate) fn add(&mut self, finding: Finding) {
        match finding.kind {
            FindingKind::Damaged | FindingKind::Differs | FindingKind::SourceDiffers => self.mismatches += 1,
            FindingKind::NotRestored | FindingKind::SourceUnreadable => self.failures += 1,
            FindingKind::SourceChanged => self.remarks += 1,
        }
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }

    /// How many findings there are with those that were not kept.
    pub fn finding_count(&self) -> u64 {
        self.mismatches + self.failures + self.remarks
    }

    /// Seconds that a restore of all files would take: by the bytes and by the files of the sample,
    /// the smaller number first. `None`: the sample has no files.
    pub fn seconds_for_all(&self) -> Option<(f64, f64)> {
        let ratio =
            |all: u64, some: u64| if all == 0 { Some(1.0) } else { (some > 0).then(|| all as f64 / some as f64) };
        let by_files = ratio(self.population.files, self.sample.files)?;
        // Empty files say nothing about bytes.
        let by_bytes = ratio(self.population.bytes, self.sample.bytes).unwrap_or(by_files);
        let seconds = self.restore_ms as f64 / 1000.0;
        Some((seconds * by_files.min(by_bytes), seconds * by_files.max(by_bytes)))
    }
}
