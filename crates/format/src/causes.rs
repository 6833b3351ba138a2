//! Errors for people.

use std::error::Error;

/// An error and its causes in one line. Causes that the text before them repeats are left out.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let why = cause.to_string();
        if !text.contains(&why) {
            text.push_str(": ");
            text.push_str(&why);
        }
        next = cause.source();
    }
    text.replace('\n', " ")
}
