//! The inventory: a TOML file with the images of a batch.
//!
//! ```toml
//! [[image]]
//! name = "web-1"                  # default: from the source
//! source = "/images/web-1.raw"    # as `larder backup --image`; * ? [a-z] name several files
//! series = "vm/web-1"             # default: vm/NAME
//! host = "a"                      # default: this machine
//! map = "/maps/web-1.json"        # as --changed-map; {name} stands for the name
//! context = "qemu:dirty-bitmap:b" # as --changed-context
//! since = "latest"                # as --changed-since
//! shared = true                   # on storage that all hosts have, instead of a host
//! ```
//!
//! Relative paths begin at the folder of the file.
//!
//! Only text is looked at here, except for patterns: these name the files that exist.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use larder_profile::document::{self, ConfigError, Entry, Place, Value};
use larder_profile::nearest::nearest;
use larder_source::files_from::{ListFormat, parse_list};

/// An image in the inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// The series of its snapshots.
    pub series: String,
    /// The host that reads it; `None`: this machine.
    pub host: Option<String>,
    /// Whether any host can read it.
    pub is_shared: bool,
    /// Where it is read from.
    pub source: String,
    /// A file with a map of its changes.
    pub map: Option<PathBuf>,
    /// A context of a server of network block devices.
    pub context: Option<String>,
    /// The snapshot from which the changes are counted.
    pub since: Option<String>,
}

/// Series with this beginning belong to the program.
pub const RESERVED: &str = "larder:";

/// Images of a batch at most.
const IMAGES_MAX: usize = 65_535;

const KEYS: [&str; 7] = ["name", "source", "series", "host", "map", "context", "since"];
/// The key that is no text.
const SHARED: &str = "shared";

/// Reads an inventory.
///
/// # Errors
/// The file cannot be read, or names nothing, something twice, or what has no meaning.
pub fn read(file: &Path) -> Result<Vec<Listed>, ConfigError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| ConfigError::whole(format!("cannot read {}: {error}", file.display())))?;
    parse(file, &text)
}

/// A path of an inventory: relative ones begin at its folder.
fn beside(file: &Path, path: &str) -> String {
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    let is_local = !path.contains("://") && !path.starts_with("qemu:") && !path.starts_with("thin:");
    let (prefix, rest) = match path.strip_prefix("qcow2:").or_else(|| path.strip_prefix("raw:")) {
        Some(rest) => (&path[..path.len() - rest.len()], rest),
        None => ("", path),
    };
    match folder.as_os_str().is_empty() || !is_local {
        true => path.to_owned(),
        false => format!("{prefix}{}", folder.join(rest).display()),
    }
}

/// The same from its text.
///
/// # Errors
/// As [`read`].
pub fn parse(file: &Path, text: &str) -> Result<Vec<Listed>, ConfigError> {
    let mut document = document::parse(&Arc::from(file), text)?;
    let images = document.take("image");
    if let Some(other) = document.entries.first() {
        return Err(ConfigError::at(&other.place, format!("an inventory has [[image]] alone, not {:?}", other.key)));
    }
    let tables = match images {
        None => Vec::new(),
        Some(Entry { node, .. }) => match node.value {
            Value::List(list) => list,
            _ => return Err(ConfigError::at(&node.place, "images are written as [[image]]")),
        },
    };
    let mut seen = Seen::default();
    let mut all = Vec::new();
    for node in tables {
        let Value::Table(table) = node.value else {
            return Err(ConfigError::at(&node.place, "images are written as [[image]]"));
        };
        let mut fields = Fields::of(table.entries)?;
        for key in ["source", "map"] {
            fields.0.entry(key).and_modify(|(_, path)| *path = beside(file, path));
        }
        for listed in expand(&node.place, fields)? {
            seen.note(&node.place, &listed)?;
            all.push(listed);
        }
    }
    match all.len() {
        0 => Err(ConfigError::whole(format!("{} names no image: write [[image]] with a source", file.display()))),
        1..=IMAGES_MAX => Ok(all),
        _ => Err(ConfigError::whole(format!("{} names more than {IMAGES_MAX} images", file.display()))),
    }
}

/// What was named so far, and where.
#[derive(Default)]
struct Seen(BTreeMap<(&'static str, String), Place>);

impl Seen {
    fn note(&mut self, place: &Place, listed: &Listed) -> Result<(), ConfigError> {
        for (what, name) in [("name", &listed.name), ("series", &listed.series), ("source", &listed.source)] {
            if let Some(first) = self.0.insert((what, name.clone()), place.clone()) {
                let message = format!("two images have the {what} {name:?}; the first is in line {}", first.line);
                return Err(ConfigError::at(place, message));
            }
        }
        Ok(())
    }
}

/// The texts of an image, and whether it is shared.
#[derive(Default)]
struct Fields(BTreeMap<&'static str, (Place, String)>, bool);

impl Fields {
    fn of(entries: Vec<Entry>) -> Result<Self, ConfigError> {
        let mut fields = Self::default();
        for Entry { key, place, node } in entries {
            if key == SHARED {
                let Value::Boolean(is_shared) = node.value else {
                    return Err(ConfigError::at(&node.place, format!("{SHARED} is true or false")));
                };
                fields.1 = is_shared;
                continue;
            }
            let Some(known) = KEYS.into_iter().find(|known| *known == key) else {
                let like = nearest(&key, KEYS.into_iter().chain([SHARED]))
                    .map(|like| format!("; is {like} meant?"))
                    .unwrap_or_default();
                return Err(ConfigError::at(&place, format!("unknown key \"{key}\"{like}")));
            };
            match node.value {
                Value::Text(text) if !text.is_empty() => fields.0.insert(known, (node.place, text)),
                _ => return Err(ConfigError::at(&node.place, format!("{known} is a text that is not empty"))),
            };
        }
        Ok(fields)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|(_, text)| text.as_str())
    }
}

/// The images that an entry names: one, or those that a pattern finds.
fn expand(place: &Place, fields: Fields) -> Result<Vec<Listed>, ConfigError> {
    let (source_place, source) = match fields.0.get("source") {
        Some(found) => found,
        None => return Err(ConfigError::at(place, "an image needs a source")),
    };
    if fields.text("context").is_some() && fields.text("map").is_some() {
        return Err(ConfigError::at(place, "an image has a map or a context, not both"));
    }
    if fields.text("host").is_some() && fields.1 {
        return Err(ConfigError::at(place, "an image has a host, or is shared, not both"));
    }
    if !is_pattern(source) {
        return Ok(vec![listed(place, &fields, source.clone())?]);
    }
    for key in ["name", "series"] {
        if let Some((place, _)) = fields.0.get(key) {
            return Err(ConfigError::at(place, format!("a pattern names several images, so it cannot have one {key}")));
        }
    }
    let (prefix, pattern) = match source.strip_prefix("qcow2:").or_else(|| source.strip_prefix("raw:")) {
        Some(path) => (&source[..source.len() - path.len()], path),
        None => ("", source.as_str()),
    };
    let found = parse_list(b"", pattern.as_bytes(), ListFormat::Patterns, b".")
        .map_err(|_| ConfigError::at(source_place, format!("{pattern} matches no file, or is not a pattern")))?;
    let mut images = Vec::new();
    for path in found.paths {
        let path = String::from_utf8(path)
            .map_err(|_| ConfigError::at(source_place, "a file that the pattern finds has a name that is no text"))?;
        images.push(listed(place, &fields, format!("{prefix}{path}"))?);
    }
    match images.is_empty() {
        true => Err(ConfigError::at(source_place, format!("{pattern} matches no file"))),
        false => Ok(images),
    }
}

/// Whether a source names files by a pattern. Addresses are none, and their brackets neither.
fn is_pattern(source: &str) -> bool {
    !source.contains("://") && !source.starts_with("qemu:") && source.contains(['*', '?', '['])
}

fn listed(place: &Place, fields: &Fields, source: String) -> Result<Listed, ConfigError> {
    let name = fields.text("name").map_or_else(|| name_of(&source), str::to_owned);
    let series = fields.text("series").map_or_else(|| format!("vm/{name}"), str::to_owned);
    if series.starts_with(RESERVED) {
        return Err(ConfigError::at(place, format!("series that begin with {RESERVED} belong to the program")));
    }
    let map = fields.text("map").map(|map| PathBuf::from(map.replace("{name}", &name)));
    let text = |key: &str| fields.text(key).map(str::to_owned);
    let (host, context, since) = (text("host"), text("context"), text("since"));
    Ok(Listed { series, host, is_shared: fields.1, map, context, since, name, source })
}

/// The last part of a source, without its ending.
fn name_of(source: &str) -> String {
    let last = source.rsplit(['/', ':']).find(|part| !part.is_empty()).unwrap_or(source);
    let known = [".raw", ".img", ".qcow2"].iter().find_map(|ending| last.strip_suffix(ending));
    known.filter(|name| !name.is_empty()).unwrap_or(last).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Listed>, String> {
        parse(Path::new("i.toml"), text).map_err(|error| error.to_string())
    }

    fn refused(text: &str) -> String {
        parsed(text).expect_err("refused")
    }

    #[test]
    fn an_image_gets_names_from_its_source() {
        let all =
            parsed("[[image]]\nsource = \"/images/web-1.raw\"\n[[image]]\nsource = \"nbd://h/db\"\n").expect("valid");
        assert_eq!((&*all[0].name, &*all[0].series), ("web-1", "vm/web-1"));
        assert_eq!((&*all[1].name, &*all[1].series), ("db", "vm/db"));
        let text =
            "[[image]]\nname = \"a\"\nsource = \"qcow2:/x\"\nseries = \"s\"\nhost = \"h\"\nmap = \"/m/{name}\"\n";
        let [one] = &*parsed(text).expect("valid") else { panic!("one image") };
        assert_eq!((&*one.series, one.host.as_deref(), one.is_shared), ("s", Some("h"), false));
        let shared = parsed("[[image]]\nsource = \"x\"\nshared = true\n").expect("valid");
        assert!(shared[0].is_shared && shared[0].host.is_none());
        assert_eq!(one.map.as_deref(), Some(Path::new("/m/a")));
    }

    #[test]
    fn patterns_name_the_files_that_exist() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["b.raw", "a.raw", "c.txt"] {
            std::fs::write(folder.path().join(name), "x").expect("written");
        }
        let all = parsed(&format!("[[image]]\nsource = \"{}/*.raw\"\n", folder.path().display())).expect("valid");
        let names: Vec<_> = all.iter().map(|listed| &*listed.name).collect();
        assert_eq!(names, ["a", "b"]);
        let nothing = format!("[[image]]\nsource = \"{}/*.img\"\n", folder.path().display());
        assert!(refused(&nothing).contains("matches no file"));
        let named = format!("[[image]]\nname = \"x\"\nsource = \"{}/*.raw\"\n", folder.path().display());
        assert!(refused(&named).contains("cannot have one name"));
    }

    #[test]
    fn relative_paths_begin_at_the_folder_of_the_inventory() {
        let text = "[[image]]\nsource = \"qcow2:a/x.qcow2\"\nmap = \"/m\"\n[[image]]\nsource = \"nbd://h/db\"\n";
        let all = parse(Path::new("/etc/larder/i.toml"), text).expect("valid");
        assert_eq!((&*all[0].source, &*all[0].name), ("qcow2:/etc/larder/a/x.qcow2", "x"));
        assert_eq!((all[0].map.as_deref(), &*all[1].source), (Some(Path::new("/m")), "nbd://h/db"));
    }

    #[test]
    fn mistakes_name_their_place() {
        assert!(refused("").contains("names no image"));
        assert!(refused("[image]\nsource = \"x\"\n").contains("[[image]]"));
        assert!(refused("[[images]]\nsource = \"x\"\n").contains("i.toml:1:3"));
        assert!(refused("[[image]]\nname = \"x\"\n").contains("needs a source"));
        assert!(refused("[[image]]\nsource = \"x\"\nsorce = \"y\"\n").contains("is source meant"));
        assert!(refused("[[image]]\nsource = \"x\"\nseries = \"larder:y\"\n").contains("belong to the program"));
        assert!(refused("[[image]]\nsource = 3\n").contains("a text"));
        let both = "[[image]]\nsource = \"nbd://h/x\"\nmap = \"m\"\ncontext = \"c\"\n";
        assert!(refused(both).contains("not both"));
        let shared = "[[image]]\nsource = \"x\"\nhost = \"h\"\nshared = true\n";
        assert!(refused(shared).contains("not both"));
        assert!(refused("[[image]]\nsource = \"x\"\nshared = \"yes\"\n").contains("true or false"));
        for twice in ["name = \"x\"", "series = \"x\""] {
            let text = format!("[[image]]\nsource = \"a\"\n{twice}\n[[image]]\nsource = \"b\"\n{twice}\n");
            assert!(refused(&text).contains("the first is in line 1"), "{twice}");
        }
        let twice = "[[image]]\nsource = \"a\"\nname = \"x\"\n[[image]]\nsource = \"a\"\nname = \"y\"\n";
        assert!(refused(twice).contains("the source \"a\""));
    }
}
