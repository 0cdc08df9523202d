//! Cutting text between characters. (The standard library's own is younger than our oldest compiler.)

/// The last place at or before `at` where a text can be cut.
pub(crate) fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// The first place at or after `at` where a text can be cut.
pub(crate) fn ceil(text: &str, at: usize) -> usize {
    (at..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        const CASES: &[(usize, usize, usize)] =
            &[(0, 0, 0), (1, 1, 1), (2, 1, 4), (3, 1, 4), (4, 4, 4), (5, 5, 5), (9, 5, 5)];
        for (at, before, after) in CASES {
            assert_eq!((floor("a€b", *at), ceil("a€b", *at)), (*before, *after), "{at}");
        }
    }
}
