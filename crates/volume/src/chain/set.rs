//! Which filters a store asks, and in which order.

use std::fmt;
use std::str::FromStr;

/// A filter of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FilterKind {
    /// Chunks of zeros are not stored.
    Zero,
    /// Whole blocks that keep their content, by their MAC. Asked before blocks are cut.
    Mac,
    /// Filters of the runs rule chunks out.
    Bloom,
    /// The old mapping of the block, and that of the block before.
    Block,
    /// Fingerprints of containers that were hit lately.
    Cache,
    /// The chunk index.
    Index,
    /// Comparison of bytes.
    Bytes,
}

impl FilterKind {
    /// All, in the default order.
    pub const ALL: [Self; 7] = [Self::Zero, Self::Mac, Self::Bloom, Self::Block, Self::Cache, Self::Index, Self::Bytes];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zero => "zero",
            Self::Mac => "mac",
            Self::Bloom => "bloom",
            Self::Block => "block",
            Self::Cache => "cache",
            Self::Index => "index",
            Self::Bytes => "bytes",
        }
    }
}

/// Filters in the order in which they are asked. Any order and any subset is correct. Without
/// `index` some chunks are stored twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterSet(Vec<FilterKind>);

impl FilterSet {
    /// These filters. `None`: one is named twice.
    pub fn new(kinds: Vec<FilterKind>) -> Option<Self> {
        let is_unique = kinds.iter().enumerate().all(|(at, kind)| !kinds[..at].contains(kind));
        is_unique.then_some(Self(kinds))
    }

    /// The filters in order.
    pub fn kinds(&self) -> &[FilterKind] {
        &self.0
    }

    /// Whether a filter is in.
    pub fn has(&self, kind: FilterKind) -> bool {
        self.0.contains(&kind)
    }
}

impl Default for FilterSet {
    /// All but the comparison of bytes, which reads every duplicate.
    fn default() -> Self {
        Self(FilterKind::ALL.into_iter().filter(|kind| *kind != FilterKind::Bytes).collect())
    }
}

impl fmt::Display for FilterSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(|kind| kind.name()).collect();
        f.write_str(&names.join(","))
    }
}

/// A list that names no filter, or one twice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a filter, or is named twice; filters are zero, mac, bloom, block, cache, index and bytes")]
pub struct UnknownFilter(pub String);

impl FromStr for FilterSet {
    type Err = UnknownFilter;

    fn from_str(text: &str) -> Result<Self, UnknownFilter> {
        let mut kinds = Vec::new();
        for name in text.split(',') {
            let kind = FilterKind::ALL.into_iter().find(|kind| kind.name() == name);
            let kind = kind.filter(|kind| !kinds.contains(kind));
            kinds.push(kind.ok_or_else(|| UnknownFilter(name.to_owned()))?);
        }
        Ok(Self(kinds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_shown() {
        assert_eq!(FilterSet::default().to_string(), "zero,mac,bloom,block,cache,index");
        for text in ["zero,mac,bloom,block,cache,index,bytes", "index", "index,zero"] {
            assert_eq!(text.parse::<FilterSet>().unwrap().to_string(), text);
        }
        for (text, wrong) in
            [("", ""), ("index,", ""), ("index,index", "index"), ("zero,blom", "blom"), ("Zero", "Zero")]
        {
            assert_eq!(text.parse::<FilterSet>(), Err(UnknownFilter(wrong.to_owned())), "{text}");
        }
        let shown = UnknownFilter("blom".into()).to_string();
        assert!(FilterKind::ALL.into_iter().all(|kind| shown.contains(kind.name())), "{shown}");
        assert_eq!(FilterSet::new(vec![FilterKind::Zero, FilterKind::Zero]), None);
    }
}
