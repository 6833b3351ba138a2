//! Records whose fields grow over the years are CBOR maps with numbered fields: readers skip fields
//! they do not know.

use crate::seal::only_zeros;
use crate::wire::DecodeError;

pub(crate) fn encode<T: minicbor::Encode<()>>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    match minicbor::encode(value, &mut out) {
        Ok(()) => out,
        Err(error) => match error.into_write() {
            None => unreachable!("no field of a record refuses to be encoded"),
            Some(infallible) => match infallible {},
        },
    }
}

/// For fields that are left out at 0.
pub(crate) fn is_zero(number: &u32) -> bool {
    *number == 0
}

pub(crate) fn decode<'b, T: minicbor::Decode<'b, ()>>(bytes: &'b [u8], what: &'static str) -> Result<T, DecodeError> {
    let mut decoder = minicbor::Decoder::new(bytes);
    let value = decoder.decode().map_err(|_| DecodeError::invalid(what, "its fields cannot be read"))?;
    if decoder.position() != bytes.len() {
        return Err(DecodeError::invalid(what, "bytes follow its end"));
    }
    Ok(value)
}

/// The same for a part with zeros behind the record.
pub(crate) fn decode_padded<'b, T: minicbor::Decode<'b, ()>>(
    bytes: &'b [u8],
    what: &'static str,
) -> Result<T, DecodeError> {
    let mut decoder = minicbor::Decoder::new(bytes);
    let value = decoder.decode().map_err(|_| DecodeError::invalid(what, "its fields cannot be read"))?;
    only_zeros(bytes.get(decoder.position()..).unwrap_or_default(), what)?;
    Ok(value)
}
