//! The requested paths of a backup, made into one plan of the walk.
//!
//! A version's root is `/`. Every root is made absolute and cleaned by its text alone: `..` removes
//! the component before it, as a shell's `cd` does, and no symlink is looked at. A path given
//! twice, or inside another, needs only the outer one. It stays in the plan nevertheless. So the
//! walk can report it when it does not exist, and can enter it on another file system.

use larder_format::ErrorKind;
use thiserror::Error;

use crate::path_text::PathText;

/// Why a list of paths cannot be walked.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RootsError {
    /// No path at all.
    #[error("no path to back up was given")]
    Empty,
    /// A path of no bytes.
    #[error("an empty path was given")]
    EmptyPath,
    /// Paths cannot hold NUL.
    #[error("the path {} holds a NUL byte", PathText(.path))]
    Nul {
        /// The path as given.
        path: Vec<u8>,
    },
    /// The folder that relative paths start from must be absolute itself.
    #[error("the current folder {} is not an absolute path", PathText(.path))]
    RelativeBase {
        /// The folder as given.
        path: Vec<u8>,
    },
}

impl RootsError {
    /// How a caller can react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Empty | Self::EmptyPath | Self::Nul { .. } | Self::RelativeBase { .. } => ErrorKind::BadRequest,
        }
    }
}

/// The paths to walk, and the folders above them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// Node 0 is `/`.
    nodes: Vec<Node>,
}

/// Place of a path in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeId(usize);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Node {
    name: Vec<u8>,
    /// Sorted by name.
    children: Vec<NodeId>,
    is_root: bool,
}

impl Roots {
    /// Makes a plan of `paths`; relative ones start at `base`, the absolute path of the current
    /// folder.
    pub fn new<P: AsRef<[u8]>>(paths: impl IntoIterator<Item = P>, base: &[u8]) -> Result<Self, RootsError> {
        let mut roots = Self { nodes: vec![Node::default()] };
        let mut any = false;
        for path in paths {
            let absolute = absolute(path.as_ref(), base)?;
            roots.insert(&absolute);
            any = true;
        }
        if any { Ok(roots) } else { Err(RootsError::Empty) }
    }

    /// The roots as absolute paths without those inside another one, in the order of the walk.
    pub fn paths(&self) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        self.collect(Self::TOP, &mut Vec::new(), |path| {
            found.push(if path.is_empty() { b"/".to_vec() } else { path.to_vec() });
            false
        });
        found
    }

    pub(crate) const TOP: NodeId = NodeId(0);

    pub(crate) fn is_root(&self, node: NodeId) -> bool {
        self.nodes[node.0].is_root
    }

    pub(crate) fn child(&self, node: NodeId, name: &[u8]) -> Option<NodeId> {
        let children = &self.nodes[node.0].children;
        children.binary_search_by(|child| self.nodes[child.0].name.as_slice().cmp(name)).ok().map(|at| children[at])
    }

    pub(crate) fn child_names(&self, node: NodeId) -> impl Iterator<Item = &[u8]> {
        self.nodes[node.0].children.iter().map(|child| self.nodes[child.0].name.as_slice())
    }

    /// Paths of the roots at and below a node, relative to `/`; `node` itself has the path `path`.
    pub(crate) fn roots_below(&self, node: NodeId, path: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut start = if path.is_empty() { Vec::new() } else { [b"/", path].concat() };
        self.collect(node, &mut start, |path| {
            found.push(path.get(1..).unwrap_or_default().to_vec());
            true
        });
        found
    }

    /// Calls `visit` with the path (`/a/b`, or nothing for the top) of every root at or below
    /// `node`, whose own path is `path`. `visit` says whether to look below a root.
    fn collect(&self, node: NodeId, path: &mut Vec<u8>, mut visit: impl FnMut(&[u8]) -> bool) {
        if self.is_root(node) && !visit(path) {
            return;
        }
        // A stack of our own: a path may have more components than the thread's stack has room for.
        let below =
            |node: NodeId, length: usize| self.nodes[node.0].children.iter().rev().map(move |&child| (child, length));
        let mut stack: Vec<(NodeId, usize)> = below(node, path.len()).collect();
        while let Some((node, parent_length)) = stack.pop() {
            path.truncate(parent_length);
            path.push(b'/');
            path.extend_from_slice(&self.nodes[node.0].name);
            if !self.is_root(node) || visit(path) {
                stack.extend(below(node, path.len()));
            }
        }
    }

    fn insert(&mut self, components: &[&[u8]]) {
        let mut node = Self::TOP;
        for name in components {
            let found =
                self.nodes[node.0].children.binary_search_by(|child| self.nodes[child.0].name.as_slice().cmp(name));
            node = match found {
                Ok(at) => self.nodes[node.0].children[at],
                Err(at) => {
                    let fresh = NodeId(self.nodes.len());
                    self.nodes.push(Node { name: name.to_vec(), ..Node::default() });
                    self.nodes[node.0].children.insert(at, fresh);
                    fresh
                }
            };
        }
        self.nodes[node.0].is_root = true;
    }
}

/// The components of `path`, made absolute and clean.
fn absolute<'a>(path: &'a [u8], base: &'a [u8]) -> Result<Vec<&'a [u8]>, RootsError> {
    if path.is_empty() {
        return Err(RootsError::EmptyPath);
    }
    if path.contains(&0) {
        return Err(RootsError::Nul { path: path.to_vec() });
    }
    let is_absolute = path.starts_with(b"/");
    if !is_absolute && !base.starts_with(b"/") {
        return Err(RootsError::RelativeBase { path: base.to_vec() });
    }
    let start: &[u8] = if is_absolute { b"" } else { base };
    let mut components = Vec::new();
    for name in start.split(|byte| *byte == b'/').chain(path.split(|byte| *byte == b'/')) {
        match name {
            b"" | b"." => {}
            b".." => {
                components.pop();
            }
            name => components.push(name),
        }
    }
    Ok(components)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(given: &[&str], base: &str) -> Vec<String> {
        let roots = Roots::new(given, base.as_bytes()).expect("good paths");
        roots.paths().into_iter().map(|path| String::from_utf8(path).expect("text")).collect()
    }

    #[test]
    fn paths_are_absolute_clean_sorted_and_walked_once() {
        assert_eq!(paths(&["b", "./a/../c//", "/x/", "b/inner", "b"], "/home/u"), ["/home/u/b", "/home/u/c", "/x"]);
        assert_eq!(paths(&["/..", "/a"], "/"), ["/"]);
        assert_eq!(paths(&["."], "/home/u/"), ["/home/u"]);
        assert_eq!(paths(&["/a.b", "/a/b", "/a-"], "/"), ["/a/b", "/a-", "/a.b"]);
    }

    #[test]
    fn a_root_inside_another_is_still_known_to_the_walk() {
        let roots = Roots::new(["/a", "/a/b/c"], b"/").expect("good paths");
        let a = roots.child(Roots::TOP, b"a").expect("planned");
        assert!(roots.is_root(a));
        assert_eq!(roots.roots_below(a, b"a"), [b"a".to_vec(), b"a/b/c".to_vec()]);
        let b = roots.child(a, b"b").expect("planned");
        assert_eq!(roots.roots_below(b, b"a/b"), [b"a/b/c".to_vec()]);
        assert_eq!(roots.child_names(a).collect::<Vec<_>>(), [b"b"]);
    }

    #[test]
    fn unusable_paths_are_refused() {
        let none: [&str; 0] = [];
        assert_eq!(Roots::new(none, b"/"), Err(RootsError::Empty));
        assert_eq!(Roots::new([""], b"/"), Err(RootsError::EmptyPath));
        assert_eq!(Roots::new(["a\0b"], b"/"), Err(RootsError::Nul { path: b"a\0b".to_vec() }));
        assert_eq!(Roots::new(["a"], b"rel"), Err(RootsError::RelativeBase { path: b"rel".to_vec() }));
    }
}
