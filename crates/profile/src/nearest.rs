//! The known name that a mistyped one probably means.

/// How similar two names must be, from 0 to 1.
const SIMILAR: f64 = 0.7;

/// The most similar of the names, if one is similar enough.
pub fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = names.into_iter().map(|name| (strsim::jaro_winkler(typed, name), name));
    let best = scored.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(score, _)| *score > SIMILAR).map(|(_, name)| name)
}

/// `; did you mean "keep-daily"?` or nothing, for the end of a message.
pub fn did_you_mean<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(typed, names).map_or_else(String::new, |name| format!("; did you mean \"{name}\"?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_others_are_not() {
        let names = ["keep-daily", "keep-weekly", "prune"];
        assert_eq!(nearest("keep-dailyx", names), Some("keep-daily"));
        assert_eq!(nearest("color", names), None);
        assert_eq!(did_you_mean("prun", names), "; did you mean \"prune\"?");
    }
}
