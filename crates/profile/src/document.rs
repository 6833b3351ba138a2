//! A TOML file as values that know their places.
//!
//! Keys keep the order of the file. Errors name file, line and column.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: Arc<Path>,
    /// Number of the line, from 1.
    pub line: usize,
    /// Number of the character in the line, from 1.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}

/// A mistake in a configuration file: where it is, and why it is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The place; `None` if the file as a whole cannot be used.
    pub place: Option<Place>,
    /// The mistake, one line.
    pub message: String,
}

impl ConfigError {
    /// A mistake at a place.
    pub fn at(place: &Place, message: impl Into<String>) -> Self {
        Self { place: Some(place.clone()), message: message.into() }
    }

    /// A file that cannot be used.
    pub fn whole(message: impl Into<String>) -> Self {
        Self { place: None, message: message.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ConfigError {}

/// A value and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Where the value begins.
    pub place: Place,
    /// The value.
    pub value: Value,
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A string, or a time.
    Text(String),
    /// An integer or a float, as it is written.
    Number(String),
    /// `true` or `false`.
    Boolean(bool),
    /// A list.
    List(Vec<Node>),
    /// A table.
    Table(Table),
}

impl Value {
    /// The kind, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Number(_) => "a number",
            Self::Boolean(_) => "true or false",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key is.
    pub place: Place,
    /// The value.
    pub node: Node,
}

/// The entries of a table in the order of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// The entries.
    pub entries: Vec<Entry>,
}

impl Table {
    /// Removes an entry and gives it.
    pub fn take(&mut self, key: &str) -> Option<Entry> {
        let at = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(at))
    }
}

/// Reads a document.
///
/// # Errors
/// The text is no TOML.
pub fn parse(file: &Arc<Path>, text: &str) -> Result<Table, ConfigError> {
    let source = Source { file, text };
    let table = DeTable::parse(text).map_err(|error| {
        let place = source.place(error.span().map_or(0, |span| span.start));
        ConfigError::at(&place, error.message().replace('\n', " "))
    })?;
    source.table(table.get_ref())
}

/// The text of a file.
struct Source<'a> {
    file: &'a Arc<Path>,
    text: &'a str,
}

impl Source<'_> {
    fn place(&self, at: usize) -> Place {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        let line = before.matches('\n').count() + 1;
        let column = before.get(line_start..).map_or(0, |line| line.chars().count()) + 1;
        Place { file: self.file.clone(), line, column }
    }

    fn table(&self, table: &DeTable<'_>) -> Result<Table, ConfigError> {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let entries = entries.into_iter().map(|(key, value)| {
            let (place, node) = (self.place(key.span().start), self.node(value)?);
            Ok(Entry { key: key.get_ref().to_string(), place, node })
        });
        Ok(Table { entries: entries.collect::<Result<_, ConfigError>>()? })
    }

    fn node(&self, value: &Spanned<DeValue<'_>>) -> Result<Node, ConfigError> {
        let place = self.place(value.span().start);
        let value = match value.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => {
                let parsed = i128::from_str_radix(&number.as_str().replace('_', ""), number.radix());
                Value::Number(parsed.map_err(|_| ConfigError::at(&place, "this number is too large"))?.to_string())
            }
            DeValue::Float(number) => Value::Number(number.as_str().to_owned()),
            DeValue::Boolean(value) => Value::Boolean(*value),
            DeValue::Datetime(time) => Value::Text(time.to_string()),
            DeValue::Array(list) => {
                Value::List(list.iter().map(|value| self.node(value)).collect::<Result<_, ConfigError>>()?)
            }
            DeValue::Table(table) => Value::Table(self.table(table)?),
        };
        Ok(Node { place, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Table, ConfigError> {
        parse(&Arc::from(Path::new("x.toml")), text)
    }

    #[test]
    fn entries_keep_their_order_and_know_their_places() {
        let table = parsed("b = 1\n\n[z]\n  \"é\" = [\"x\", true]\n[a]\n").expect("TOML");
        let keys: Vec<_> = table.entries.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!(keys, ["b", "z", "a"]);
        assert_eq!(table.entries[0].node.value, Value::Number("1".to_owned()));
        let Value::Table(below) = &table.entries[1].node.value else { panic!("a table") };
        assert_eq!(below.entries[0].place.to_string(), "x.toml:4:3");
        let Value::List(list) = &below.entries[0].node.value else { panic!("a list") };
        assert_eq!((list[1].place.line, list[1].place.column), (4, 15));
    }

    #[test]
    fn numbers_are_what_they_mean() {
        for (text, number) in [("0x10", "16"), ("1_000", "1000"), ("-3", "-3"), ("2.5", "2.5"), ("+7", "7")] {
            let table = parsed(&format!("n = {text}")).expect("TOML");
            assert_eq!(table.entries[0].node.value, Value::Number(number.to_owned()), "{text}");
        }
    }

    #[test]
    fn errors_name_their_place() {
        let error = parsed("a = 1\nb = \n").expect_err("no value");
        assert!(error.to_string().starts_with("x.toml:2:"), "{error}");
        let error = parsed("a = 1\na = 2\n").expect_err("twice");
        assert!(error.to_string().starts_with("x.toml:2:1: "), "{error}");
        assert!(parsed(&format!("a = {}{}", "[".repeat(5000), "]".repeat(5000))).is_err(), "no stack overflow");
    }
}
