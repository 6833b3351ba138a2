//! Names of series, made of facts of originals.

use regex::Regex;

/// A regular expression for names of originals, with named groups.
#[derive(Debug, Clone)]
pub struct Pattern(Regex);

impl Pattern {
    /// Reads an expression.
    ///
    /// # Errors
    /// It is none, or has no named group.
    pub fn new(text: &str) -> Result<Self, String> {
        let pattern = Regex::new(text).map_err(|error| error.to_string())?;
        match pattern.capture_names().flatten().next() {
            Some(_) => Ok(Self(pattern)),
            None => Err(format!("the pattern {text:?} has no named group, such as (?P<host>[^-]+)")),
        }
    }

    /// The named groups and their values in a name. `None`: it does not match.
    pub fn groups(&self, name: &str) -> Option<Vec<(String, String)>> {
        let found = self.0.captures(name)?;
        let value = |group: &str| found.name(group).map_or(String::new(), |value| value.as_str().to_owned());
        Some(self.0.capture_names().flatten().map(|group| (group.to_owned(), value(group))).collect())
    }

    /// The named groups, each with its name as its value.
    pub fn names(&self) -> Vec<(String, String)> {
        self.0.capture_names().flatten().map(|group| (group.to_owned(), group.to_owned())).collect()
    }
}

/// Replaces `{key}` by the value of the key.
///
/// # Errors
/// The template has a key that is not among these, or the name would be empty.
pub fn expand(template: &str, values: &[(&str, &str)]) -> Result<String, String> {
    let mut name = String::new();
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once('{') {
        let (key, after) =
            behind.split_once('}').ok_or_else(|| format!("the template {template:?} has a {{ without a }}"))?;
        let value = values.iter().find(|(known, _)| *known == key);
        let (_, value) = value.ok_or_else(|| {
            let known: Vec<String> = values.iter().map(|(known, _)| format!("{{{known}}}")).collect();
            format!("the template {template:?} has {{{key}}}, but known are only {}", known.join(", "))
        })?;
        name += before;
        name += value;
        rest = after;
    }
    name += rest;
    if name.is_empty() { Err("a series needs a name".to_owned()) } else { Ok(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_filled_in_once() {
        let values = [("host", "web{name}"), ("name", "x")];
        assert_eq!(expand("{host}:{name}/{name}", &values).as_deref(), Ok("web{name}:x/x"));
        assert_eq!(expand("plain", &values).as_deref(), Ok("plain"));
        for bad in ["{", "a{host", "{absent}", ""] {
            assert!(expand(bad, &values).is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns_have_groups() {
        let pattern = Pattern::new("^(?P<host>[^-]+)-(?P<what>x?)").expect("valid");
        let pairs =
            |all: &[(&str, &str)]| all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>();
        assert_eq!(pattern.groups("web1-2024"), Some(pairs(&[("host", "web1"), ("what", "")])));
        assert_eq!(pattern.groups("web1"), None);
        assert_eq!(pattern.names(), pairs(&[("host", "host"), ("what", "what")]));
        assert!(Pattern::new("(").is_err() && Pattern::new("a").is_err());
    }
}
