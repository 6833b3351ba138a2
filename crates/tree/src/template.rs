//! Path templates: where a snapshot appears in the tree.
//!
//! | element | meaning |
//! |---|---|
//! | `%i`, `%I` | the id, short and whole |
//! | `%u`, `%h` | the user and the host |
//! | `%t` | each tag: a snapshot appears once for each, and not without tags |
//! | `%s` | the series |
//! | `%T` | the time |
//!
//! A slash in a value becomes `_`.

use larder_format::manifest::Summary;

use crate::time_layout::TimeLayout;

/// The templates that are used without others.
pub const DEFAULT_TEMPLATES: [&str; 5] = ["ids/%i", "snapshots/%T", "hosts/%h/%T", "tags/%t/%T", "series/%s/%T"];

/// A template that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{template:?} is no template of a path: {reason}")]
pub struct BadTemplate {
    template: String,
    reason: &'static str,
}

/// Text between elements, or an element.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    ShortId,
    Id,
    User,
    Host,
    Tag,
    Series,
    Time,
}

/// See the module header.
#[derive(Debug, Clone)]
pub struct Template {
    /// The parts of each name of the path.
    names: Vec<Vec<Part>>,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// It has an unknown element, or gives no path.
    pub fn new(text: &str) -> Result<Self, BadTemplate> {
        let bad = |reason| BadTemplate { template: text.to_owned(), reason };
        let names = text.split('/').filter(|name| !name.is_empty());
        let names = names.map(|name| parts(name).map_err(bad)).collect::<Result<Vec<_>, _>>()?;
        let is_special = |name: &Vec<Part>| matches!(&name[..], [Part::Text(text)] if text == "." || text == "..");
        if names.is_empty() || names.iter().any(is_special) {
            return Err(bad("it must name folders"));
        }
        if names.last().is_none_or(|last| last.iter().all(|part| matches!(part, Part::Text(_)))) {
            return Err(bad("its last name must have an element such as %T or %i"));
        }
        Ok(Self { names })
    }

    /// Whether the last names are those of times: their folder has a link to the latest.
    pub(crate) fn ends_with_time(&self) -> bool {
        self.names.last().is_some_and(|last| last.contains(&Part::Time))
    }

    /// Whether tags are in its paths.
    pub(crate) fn has_tag(&self) -> bool {
        self.names.iter().flatten().any(|part| *part == Part::Tag)
    }

    /// The paths of a snapshot.
    pub(crate) fn paths(&self, summary: &Summary, layout: &TimeLayout) -> Vec<Vec<String>> {
        let tags = if self.has_tag() { summary.tags.iter().map(String::as_str).collect() } else { vec![""] };
        let name = |parts: &[Part], tag| {
            let mut name = String::new();
            for part in parts {
                match part {
                    Part::Text(text) => name.push_str(text),
                    Part::ShortId => name.push_str(&summary.id.short()),
                    Part::Id => name.push_str(&summary.id.to_string()),
                    Part::User => name.push_str(&summary.user),
                    Part::Host => name.push_str(&summary.host),
                    Part::Tag => name.push_str(tag),
                    Part::Series => name.push_str(&summary.series),
                    Part::Time => name.push_str(&layout.show(summary.time_ms)),
                }
            }
            as_name(&name)
        };
        tags.into_iter().map(|tag| self.names.iter().map(|parts| name(parts, tag)).collect()).collect()
    }
}

fn parts(name: &str) -> Result<Vec<Part>, &'static str> {
    let (mut parts, mut text, mut rest) = (Vec::new(), String::new(), name.chars());
    while let Some(next) = rest.next() {
        if next != '%' {
            text.push(next);
            continue;
        }
        let part = match rest.next() {
            Some('%') => {
                text.push('%');
                continue;
            }
            Some('i') => Part::ShortId,
            Some('I') => Part::Id,
            Some('u') => Part::User,
            Some('h') => Part::Host,
            Some('t') => Part::Tag,
            Some('s') => Part::Series,
            Some('T') => Part::Time,
            _ => return Err("the elements are %i %I %u %h %t %s %T, and %% is a percent sign"),
        };
        if !text.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut text)));
        }
        parts.push(part);
    }
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
    Ok(parts)
}

/// Bytes that a name of a file may have.
const NAME_MAX: usize = 255;

/// A value as a name of a file. Room for the number of an equal name is left.
fn as_name(value: &str) -> String {
    let mut name: String = value.chars().map(|c| if matches!(c, '/' | '\0') { '_' } else { c }).collect();
    while name.len() > NAME_MAX - 8 {
        name.pop();
    }
    match name.as_str() {
        "" | "." | ".." => "_".to_owned(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_separated_from_text() {
        let template = Template::new("/a%%b/%h-%T/").expect("a template");
        assert_eq!(template.names[0], [Part::Text("a%b".to_owned())]);
        assert_eq!(template.names[1], [Part::Host, Part::Text("-".to_owned()), Part::Time]);
        assert!(template.ends_with_time());
        assert!(!Template::new("ids/%i").expect("a template").ends_with_time());
    }

    #[test]
    fn templates_that_give_no_paths_are_refused() {
        for bad in ["", "/", "%x", "a%", "../%T", "snapshots", "%T/all"] {
            assert!(Template::new(bad).is_err(), "{bad}");
        }
        for template in DEFAULT_TEMPLATES {
            assert!(Template::new(template).is_ok());
        }
    }

    #[test]
    fn values_become_names() {
        assert_eq!(as_name("web:/home/u"), "web:_home_u");
        assert_eq!([as_name(""), as_name(".."), as_name("a\0")], ["_", "_", "a_"]);
        assert_eq!(as_name(&"é".repeat(200)).len(), 246);
    }
}
