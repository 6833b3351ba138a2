//! The common properties of versions of one group.

use larder_format::manifest::Summary;

/// The properties by which versions are grouped. Without any, all are one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupBy {
    /// The series.
    pub series: bool,
    /// The host.
    pub host: bool,
    /// The paths, all of them.
    pub paths: bool,
    /// The tags, all of them.
    pub tags: bool,
}

impl Default for GroupBy {
    fn default() -> Self {
        Self { series: true, host: false, paths: false, tags: false }
    }
}

/// The common properties of a group. Those that are no criterion are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// Their domain, always: a machine could otherwise have the snapshots of another forgotten, by
    /// backups under the same names. Domains of one name, of which all but the last are closed,
    /// have one history. A summary without a name of its domain counts by the domain's id.
    pub domain: String,
    /// Their series.
    pub series: Option<String>,
    /// Their host.
    pub host: Option<String>,
    /// Their paths, sorted.
    pub paths: Option<Vec<Vec<u8>>>,
    /// Their tags, sorted.
    pub tags: Option<Vec<String>>,
}

impl GroupBy {
    /// The group of a version.
    pub fn key(self, summary: &Summary) -> GroupKey {
        let sorted = |mut paths: Vec<Vec<u8>>| {
            paths.sort();
            paths
        };
        GroupKey {
            domain: match summary.domain_name.as_str() {
                "" => summary.domain.to_string(),
                name => format!("name {name}"),
            },
            series: self.series.then(|| summary.series.clone()),
            host: self.host.then(|| summary.host.clone()),
            paths: self.paths.then(|| sorted(summary.paths.clone())),
            tags: self.tags.then(|| {
                let mut tags = summary.tags.clone();
                tags.sort();
                tags
            }),
        }
    }
}
