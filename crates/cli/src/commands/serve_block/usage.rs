//! What to type on a client.

use crate::commands::listen::{At, Place, host_of};

/// A use of the device, and the command for it.
pub(super) type Line = (&'static str, String);

/// Commands for a client of this export.
pub(super) fn lines(place: &Place, export: &str) -> Vec<Line> {
    let uri = quoted(&place.uri(export));
    let name = quoted(export);
    let client = match &place.at {
        At::Unix(socket) => {
            format!("nbd-client -unix {} -N {name} -R /dev/nbd0", quoted(&socket.to_string_lossy()))
        }
        At::Tcp(address, false) => {
            format!("nbd-client {} {} -N {name} -R /dev/nbd0", host_of(address), address.port())
        }
        At::Tcp(address, true) => format!(
            "nbd-client {} {} -N {name} -R -x -A ca-cert.pem -F client-cert.pem -K client-key.pem /dev/nbd0",
            host_of(address),
            address.port()
        ),
    };
    let drive = match &place.at {
        At::Tcp(address, true) => format!(
            "qemu-system-x86_64 -object tls-creds-x509,id=tls,dir=DIR,endpoint=client \
             -drive driver=nbd,host={},port={},tls-creds=tls,export={name},read-only=on",
            host_of(address),
            address.port()
        ),
        _ => format!("qemu-system-x86_64 -drive file={uri},format=raw,if=virtio,snapshot=on"),
    };
    let certificates = if matches!(place.at, At::Tcp(_, true)) { "?tls-certificates=DIR" } else { "" };
    let uri = match certificates {
        "" => uri,
        more => quoted(&format!("{}{more}", place.uri(export))),
    };
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
fn quoted(text: &str) -> String {
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
        let text = lines(&Place::of(At::Tcp(address, true)), "disk.raw");
        let text = text.iter().map(|(_, line)| format!("{line}\n")).collect::<String>();
        let host = crate::environment::host();
        assert!(!text.contains("0.0.0.0"), "{text}");
        assert!(text.contains(&format!("nbd-client {host} 10809 ")), "{text}");
        assert!(text.contains(&format!(",host={host},port=10809")), "{text}");
        assert!(text.contains("mount -o ro,noload ") && text.contains("until [ -e DIR/nbd ]"), "{text}");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("images/disk.raw"), "images/disk.raw");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
