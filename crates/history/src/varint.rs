//! Numbers of one to ten octets, little end first, seven bits each (LEB128).

/// Length of the longest number in octets.
pub const VARINT_BYTES_MAX: usize = 10;

pub fn push(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Takes a number off the front; `None` if it is truncated or does not fit 64 bits.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0_u64;
    for at in 0..VARINT_BYTES_MAX {
        let byte = *bytes.get(at)?;
        if at == VARINT_BYTES_MAX - 1 && byte > 1 {
            return None;
        }
        n |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            *bytes = &bytes[at + 1..];
            return Some(n);
        }
    }
    None
}

/// Encodes a difference that may be negative, small ones first: 0, -1, 1, -2, ...
pub fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

pub fn unzigzag(n: u64) -> i64 {
    (n >> 1).cast_signed() ^ -(n & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for n in [0, 1, 127, 128, 300, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            push(&mut bytes, n);
            assert!(bytes.len() <= VARINT_BYTES_MAX);
            let mut rest = bytes.as_slice();
            assert_eq!((take(&mut rest), rest.len()), (Some(n), 0));
            assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None, "cut short");
            assert_eq!(zigzag(unzigzag(n)), n);
        }
        assert_eq!(take(&mut [0xff; 10].as_slice()), None, "65 bits");
        assert_eq!((zigzag(0), zigzag(-1), zigzag(1), unzigzag(zigzag(i64::MIN))), (0, 1, 2, i64::MIN));
    }
}
