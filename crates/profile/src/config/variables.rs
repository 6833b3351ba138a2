//! Variables in values of the file: `${HOME}`, `${hostname}` and `${env:NAME}`.

use crate::document::{ConfigError, Place, Value};

/// Facts that values of the file may name.
pub struct Variables<'a> {
    /// `${hostname}`.
    pub hostname: &'a str,
    /// `${env:NAME}`, and `${HOME}`.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

impl std::fmt::Debug for Variables<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Variables").field("hostname", &self.hostname).finish_non_exhaustive()
    }
}

impl Variables<'_> {
    /// Replaces `${HOME}`, `${hostname}` and `${env:NAME}`. `$${` stands for `${`.
    pub(super) fn expand(&self, place: &Place, text: &str) -> Result<String, ConfigError> {
        let (mut expanded, mut rest) = (String::new(), text);
        while let Some(at) = rest.find("${") {
            let (before, after) = rest.split_at(at);
            if let Some(before) = before.strip_suffix('$') {
                expanded.push_str(before);
                expanded.push_str("${");
                rest = &after[2..];
                continue;
            }
            let Some(end) = after.find('}') else {
                return Err(ConfigError::at(place, "a variable has no closing }"));
            };
            let name = &after[2..end];
            expanded.push_str(before);
            expanded.push_str(&self.value(name).map_err(|why| ConfigError::at(place, why))?);
            rest = &after[end + 1..];
        }
        expanded.push_str(rest);
        Ok(expanded)
    }

    fn value(&self, name: &str) -> Result<String, String> {
        let of_env = |variable: &str| {
            (self.env)(variable).ok_or_else(|| format!("the variable {variable} is not set, which ${{{name}}} names"))
        };
        match name {
            "hostname" => Ok(self.hostname.to_owned()),
            "HOME" => of_env("HOME"),
            name => match name.strip_prefix("env:") {
                Some(variable) => of_env(variable),
                None => Err(format!("${{{name}}} is not known; use ${{HOME}}, ${{hostname}} or ${{env:NAME}}")),
            },
        }
    }
}

/// Replaces the variables in all strings of a value.
pub(super) fn expand_all(value: &mut Value, place: &Place, variables: &Variables<'_>) -> Result<(), ConfigError> {
    match value {
        Value::Text(text) => *text = variables.expand(place, text)?,
        Value::List(list) => {
            for node in list {
                expand_all(&mut node.value, &node.place, variables)?;
            }
        }
        Value::Number(_) | Value::Boolean(_) | Value::Table(_) => {}
    }
    Ok(())
}
