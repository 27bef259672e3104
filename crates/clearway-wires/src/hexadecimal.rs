//! Bytes as hexadecimal digits, two for each, and back.

/// Writes `bytes` as digits.
pub fn digits_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads `digits` back; `None` where they are no whole bytes.
pub fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    // A sign is no digit, though a number may have one.
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of__what_is_no_list_of_bytes_is_none() {
        assert_eq!(bytes_of("00ff7a"), Some(vec![0, 255, 0x7a]));
        assert_eq!(bytes_of(""), Some(Vec::new()));
        for none in ["0", "zz", "+1", "\u{e9}", "0\u{e9}f"] {
            assert_eq!(bytes_of(none), None, "{none}");
        }
    }

    #[test]
    fn digits_of__is_the_way_back() {
        assert_eq!(digits_of(&[0, 255, 0x7a]), "00ff7a");
    }
}
