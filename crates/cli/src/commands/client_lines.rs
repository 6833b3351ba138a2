//! What to type on a client.

use crate::commands::listen::{At, Place, host_of};

/// A use of the device, and the command for it.
pub(super) type Line = (&'static str, String);

/// Whether clients may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    ReadOnly,
    ReadWrite,
}

/// Commands for a client of this export.
pub(super) fn lines(place: &Place, export: &str, access: Access) -> Vec<Line> {
    let uri = quoted(&place.uri(export));
    let name = quoted(export);
    let (client_mode, drive_mode, file_mode) = match access {
        Access::ReadOnly => (" -R", "read-only=on", "snapshot=on"),
        Access::ReadWrite => ("", "discard=unmap", "discard=unmap"),
    };
    let client = match &place.at {
        At::Unix(socket) => {
            format!("nbd-client -unix {} -N {name}{client_mode} /dev/nbd0", quoted(&socket.to_string_lossy()))
        }
        At::Tcp(address, false) => {
            format!("nbd-client {} {} -N {name}{client_mode} /dev/nbd0", host_of(address), address.port())
        }
        At::Tcp(address, true) => format!(
            "nbd-client {} {} -N {name}{client_mode} -x -A ca-cert.pem -F client-cert.pem -K client-key.pem /dev/nbd0",
            host_of(address),
            address.port()
        ),
    };
    let drive = match &place.at {
        At::Tcp(address, true) => format!(
            "qemu-system-x86_64 -object tls-creds-x509,id=tls,dir=DIR,endpoint=client \
             -drive driver=nbd,host={},port={},tls-creds=tls,export={name},{drive_mode}",
            host_of(address),
            address.port()
        ),
        _ => format!("qemu-system-x86_64 -drive file={uri},format=raw,if=virtio,{file_mode}"),
    };
    let certificates = if matches!(place.at, At::Tcp(_, true)) { "?tls-certificates=DIR" } else { "" };
    let uri = match certificates {
        "" => uri,
        more => quoted(&format!("{}{more}", place.uri(export))),
    };
    if access == Access::ReadWrite {
        return vec![
            ("use it as a disk of this machine", client),
            (
                "the same without the kernel's client",
                format!(
                    "nbdfuse DIR {uri} & until [ -e DIR/nbd ]; do sleep 0.1; done; losetup --direct-io=on -f --show DIR/nbd"
                ),
            ),
            ("give it to a virtual machine", drive),
            ("copy an image to it", format!("nbdcopy disk.img {uri}")),
        ];
    }
    vec![
        (
            "mount a partition: ext4; others need other options, such as xfs ro,norecovery",
            format!("{client} && mount -o ro,noload /dev/nbd0p1 /mnt"),
        ),
        (
            "the same without the kernel's client",
            format!(
                "nbdfuse --readonly DIR {uri} & until [ -e DIR/nbd ]; do sleep 0.1; done; losetup -r -P -f --show DIR/nbd"
            ),
        ),
        ("boot a virtual machine, discarding its writes", drive),
        ("copy it", format!("nbdcopy {uri} copy.img")),
    ]
}

/// A word for a shell.
pub(super) fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.:=,@%+".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_the_host_and_wait_for_the_file() {
        let address = "0.0.0.0:10809".parse().unwrap();
        let place = Place::of(At::Tcp(address, true));
        let text = lines(&place, "disk.raw", Access::ReadOnly);
        let text = text.iter().map(|(_, line)| format!("{line}\n")).collect::<String>();
        let host = crate::environment::host();
        assert!(!text.contains("0.0.0.0"), "{text}");
        assert!(text.contains(&format!("nbd-client {host} 10809 ")), "{text}");
        assert!(text.contains(&format!(",host={host},port=10809")), "{text}");
        assert!(text.contains("mount -o ro,noload ") && text.contains("until [ -e DIR/nbd ]"), "{text}");
    }

    #[test]
    fn only_read_only_lines_forbid_writes() {
        for at in [At::Unix("/run/a.sock".into()), At::Tcp("127.0.0.1:1".parse().unwrap(), true)] {
            let text = lines(&Place::of(at), "disk", Access::ReadWrite);
            let text = text.iter().map(|(_, line)| format!("{line}\n")).collect::<String>();
            assert!(!text.contains(" -R") && !text.contains("readonly") && !text.contains("snapshot=on"), "{text}");
            assert!(text.contains("discard=unmap") && text.contains("nbd-client "), "{text}");
        }
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("images/disk.raw"), "images/disk.raw");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
