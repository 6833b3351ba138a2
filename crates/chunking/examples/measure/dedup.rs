//! Deduplication by chunk size.
use std::error::Error;
use std::ffi::OsString;

pub(crate) fn measure(_versions: &[OsString]) -> Result<(), Box<dyn Error>> {
    Ok(())
}
