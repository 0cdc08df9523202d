//! How much text goes to the model at once, and how counts are said in it.

/// At most this many lines go to the model at once.
pub(super) const MAX_LINES: usize = 2_000;

/// At most this many bytes of text go to the model at once.
pub(super) const MAX_BYTES: usize = 50 * 1024;

/// A count with thousands separated, as people read it.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count with its noun: `1 line`, `2,000 lines`.
pub(super) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_read_well() {
        assert_eq!(counted(1, "line"), "1 line");
        assert_eq!(counted(0, "line"), "0 lines");
        assert_eq!(counted(1_234_567, "byte"), "1,234,567 bytes");
        assert_eq!(grouped(123), "123");
    }
}
