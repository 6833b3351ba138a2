//! `-o KEY=VALUE`: settings of a storage, under restic's names.

use std::num::NonZeroUsize;

use clap::Args;
use larder_store::SftpOptions;

/// Connections to one server at most.
const CONNECTIONS_MAX: usize = 64;

/// Settings of the storage.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct StorageArgs {
    /// Setting of the storage: sftp.args (for ssh), sftp.command (instead of ssh) or
    /// sftp.connections [default: 4]
    #[arg(hide_short_help = true, short = 'o', long = "option", value_name = "KEY=VALUE", global = true, value_parser = parse)]
    option: Vec<Setting>,
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Setting {
    SftpArgs(String),
    SftpCommand(String),
    SftpConnections(NonZeroUsize),
    /// One of restic's that has no effect here.
    Other {
        key: String,
    },
}

/// Reads one setting.
pub(super) fn parse(text: &str) -> Result<Setting, String> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    match key {
        "sftp.args" | "sftp.command" if value.trim().is_empty() => Err(format!("{key} needs a value")),
        "sftp.args" => Ok(Setting::SftpArgs(value.to_owned())),
        "sftp.command" => Ok(Setting::SftpCommand(value.to_owned())),
        "sftp.connections" => match value.parse::<NonZeroUsize>() {
            Ok(connections) if connections.get() <= CONNECTIONS_MAX => Ok(Setting::SftpConnections(connections)),
            _ => Err(format!("sftp.connections is a number from 1 to {CONNECTIONS_MAX}")),
        },
        _ if key.starts_with("sftp.") => {
            Err("of SFTP there are sftp.args, sftp.command and sftp.connections".to_owned())
        }
        _ => Ok(Setting::Other { key: key.to_owned() }),
    }
}

impl StorageArgs {
    /// The same and these, which come later.
    pub(super) fn and(mut self, more: Vec<Setting>) -> Self {
        self.option.extend(more);
        self
    }

    /// How SFTP servers are reached. The last one of a kind counts.
    pub(crate) fn sftp(&self) -> SftpOptions {
        let mut options = SftpOptions::default();
        for setting in &self.option {
            match setting {
                Setting::SftpArgs(args) => options.args = Some(args.clone()),
                Setting::SftpCommand(command) => options.command = Some(command.clone()),
                Setting::SftpConnections(connections) => options.connections = *connections,
                Setting::Other { .. } => {}
            }
        }
        options
    }

    /// Those without effect, as they are written.
    pub(super) fn without_effect(&self) -> Vec<String> {
        let others = self.option.iter().filter_map(|setting| match setting {
            Setting::Other { key } => Some(format!("-o {key}")),
            _ => None,
        });
        others.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_sftp_count_and_others_are_told() {
        let args = StorageArgs {
            option: ["sftp.args=-i /key -v", "s3.connections=9", "sftp.connections=2", "sftp.connections=8"]
                .map(|text| parse(text).expect("accepted"))
                .to_vec(),
        };
        let sftp = args.sftp();
        assert_eq!((sftp.args.as_deref(), sftp.command, sftp.connections.get()), (Some("-i /key -v"), None, 8));
        assert_eq!(args.without_effect(), ["-o s3.connections"]);
        for wrong in ["sftp.connections=0", "sftp.connections=65", "sftp.connections", "sftp.arg=x", "sftp.command= "] {
            parse(wrong).expect_err(wrong);
        }
    }
}
