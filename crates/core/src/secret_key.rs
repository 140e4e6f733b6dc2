//! Keys of this server alone, each in a file of the data directory: 32 random octets, mode 0600, created when first
//! needed.

use std::io::{self, ErrorKind};
use std::path::Path;

use super::files;

pub const KEY_BYTES: usize = 32;

/// Reads a key; `None`: there is none. Blocks.
///
/// # Errors
/// The file cannot be read, or holds something else.
pub fn read(path: &Path) -> io::Result<Option<[u8; KEY_BYTES]>> {
    let Some(octets) = files::read(path, KEY_BYTES as u64 + 1)? else { return Ok(None) };
    let damaged =
        || io::Error::new(ErrorKind::InvalidData, "not a key of 32 octets; remove the file to create a new key");
    octets.try_into().map(Some).map_err(|_| damaged())
}

/// Reads a key; creates it durably if there is none. Blocks.
///
/// # Errors
/// There is no usable key, and none can be created.
pub fn read_or_create(path: &Path) -> io::Result<[u8; KEY_BYTES]> {
    if let Some(key) = read(path)? {
        return Ok(key);
    }
    let key = stentor_config::keys::random::<KEY_BYTES>();
    files::replace(path, &key, 0o600)?;
    Ok(key)
}
