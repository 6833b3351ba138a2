//! Environment variables that are secrets or lead to one. Programs of users get an environment
//! without them.

use std::process::Command;

/// Beginnings of names of passwords, key files, and commands that print passwords: our own ones,
/// and those of restic, under whose name the program also runs.
const PASSWORDS: [&str; 7] = [
    "LARDER_PASSWORD",
    "LARDER_NEW_PASSWORD",
    "LARDER_KEY_FILE",
    "LARDER_STORE_PASSWORD",
    "LARDER_FROM_",
    "RESTIC_PASSWORD",
    "RESTIC_FROM_",
];

/// Beginnings of names of credentials of clouds.
const CLOUDS: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

/// Whether a variable opens a repository.
pub fn is_password(name: &str) -> bool {
    PASSWORDS.iter().any(|start| name.starts_with(start))
}

/// Whether a variable opens a repository, or its storage.
pub fn is_credential(name: &str) -> bool {
    is_password(name) || CLOUDS.iter().any(|start| name.starts_with(start))
}

/// Removes the variables that `is_secret` selects from the environment of a program.
pub fn remove_from(command: &mut Command, is_secret: impl Fn(&str) -> bool) {
    for (name, _) in std::env::vars_os() {
        if is_secret(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_told_from_other_variables() {
        for name in [
            "LARDER_PASSWORD",
            "LARDER_PASSWORD_FILE",
            "LARDER_KEY_FILE",
            "LARDER_FROM_PASSWORD",
            "LARDER_FROM_KEY_FILE",
            "RESTIC_PASSWORD",
            "RESTIC_PASSWORD_COMMAND",
            "RESTIC_FROM_PASSWORD",
        ] {
            assert!(is_password(name) && is_credential(name), "{name}");
        }
        for name in ["AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_KEY", "GOOGLE_APPLICATION_CREDENTIALS"] {
            assert!(!is_password(name) && is_credential(name), "{name}");
        }
        for name in ["PATH", "LARDER_PROFILE", "LARDER_REPOSITORY", "RESTIC_REPOSITORY"] {
            assert!(!is_credential(name), "{name}");
        }
    }
}
