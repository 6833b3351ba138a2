//! `-o KEY=VALUE`: settings of a storage, under restic's names.

use std::num::NonZeroUsize;

use clap::Args;
use larder_store::{S3Options, SftpOptions};

/// Connections to one server at most.
const CONNECTIONS_MAX: usize = 64;

/// Settings of the storage.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct StorageArgs {
    /// Setting of the storage: sftp.args (for ssh), sftp.command (instead of ssh),
    /// sftp.connections [default: 4], or s3.storage-class (of new data containers)
    #[arg(hide_short_help = true, short = 'o', long = "option", value_name = "KEY=VALUE", global = true, value_parser = parse)]
    option: Vec<Setting>,
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Setting {
    SftpArgs(String),
    SftpCommand(String),
    SftpConnections(NonZeroUsize),
    S3StorageClass(String),
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
        "s3.storage-class" => {
            let is_class = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
            match !value.is_empty() && value.bytes().all(is_class) {
                true => Ok(Setting::S3StorageClass(value.to_owned())),
                false => Err("s3.storage-class is a class such as STANDARD_IA or DEEP_ARCHIVE".to_owned()),
            }
        }
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
                Setting::S3StorageClass(_) | Setting::Other { .. } => {}
            }
        }
        options
    }

    /// How objects are stored on S3. The last one of a kind counts.
    pub(crate) fn s3(&self) -> S3Options {
        let class = self.option.iter().rev().find_map(|setting| match setting {
            Setting::S3StorageClass(class) => Some(class.clone()),
            _ => None,
        });
        S3Options { storage_class: class }
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
        let classes = ["s3.storage-class=STANDARD_IA", "s3.storage-class=DEEP_ARCHIVE"];
        let args = StorageArgs { option: classes.map(|text| parse(text).expect("accepted")).to_vec() };
        assert_eq!(args.s3().storage_class.as_deref(), Some("DEEP_ARCHIVE"));
        assert!(args.without_effect().is_empty());
        for wrong in [
            "s3.storage-class=",
            "s3.storage-class=deep archive",
            "sftp.connections=0",
            "sftp.connections=65",
            "sftp.connections",
            "sftp.arg=x",
            "sftp.command= ",
        ] {
            parse(wrong).expect_err(wrong);
        }
    }
}
