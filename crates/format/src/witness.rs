//! The proof in a version's summary that a machine made it: 24 bytes (`witness_key.rs`).

use std::fmt;

/// Bytes of the id of a secret.
pub(crate) const ID_LEN: usize = 8;
/// Bytes of the MAC.
pub(crate) const MAC_LEN: usize = 16;

/// The MAC of the machine that made a version: 24 bytes in its summary.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Witness {
    /// Names the secret.
    pub id: [u8; ID_LEN],
    /// Covers the summary.
    pub mac: [u8; MAC_LEN],
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Witness({})", data_encoding::HEXLOWER.encode(&self.id))
    }
}

impl<C> minicbor::Encode<C> for Witness {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.bytes(&[&self.id[..], &self.mac].concat())?.ok()
    }
}

impl<'b, C> minicbor::Decode<'b, C> for Witness {
    fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        let wrong = || minicbor::decode::Error::message("wrong length of a witness");
        let (id, mac) = d.bytes()?.split_first_chunk().ok_or_else(wrong)?;
        Ok(Self { id: *id, mac: mac.try_into().map_err(|_| wrong())? })
    }
}
