//! Writes numbers and foreign text for people: three digits that matter, infinity as a sign,
//! nothing a terminal obeys.

use super::model::ExtendedReal;
use clearway_proto::base::Bytes;

/// How infinity is written.
pub(crate) const INFINITE: &str = "inf";

/// Returns a number with about three significant digits, without an exponent: `0.042`, `1.07`,
/// `28.3`, `11956`.
///
/// ```text
/// digits(Real::finite(28.31)) == "28.3"
/// ```
pub(crate) fn digits(number: ExtendedReal) -> String {
    let n = number.get();
    let size = n.abs();
    match size {
        _ if !number.is_finite() => INFINITE.to_owned(),
        _ if size == 0.0 => "0".to_owned(),
        _ if size < 0.0005 => format!("{n:.0e}"),
        _ if size < 0.1 => format!("{n:.3}"),
        _ if size < 9.995 => format!("{n:.2}"),
        _ if size < 99.95 => format!("{n:.1}"),
        _ if size < 1e9 => format!("{n:.0}"),
        _ => format!("{n:.2e}"),
    }
}

/// Returns the same for a number that may be missing.
pub(crate) fn digits_or_dash(number: Option<ExtendedReal>) -> String {
    number.map_or_else(|| "-".to_owned(), digits)
}

/// Returns the same in at most `width` columns, with fewer digits or an exponent where there is no
/// room for all: a number that is cut is another number.
pub(crate) fn digits_in(number: Option<ExtendedReal>, width: usize) -> String {
    let whole = digits_or_dash(number);
    let Some(number) = number.filter(|_| whole.len() > width) else { return whole };
    let n = number.get();
    let shorter = (0..3).rev().map(|places| format!("{n:.places$}"));
    let says_something =
        |text: &String| text.len() <= width && text.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    shorter.into_iter().find(says_something).unwrap_or_else(|| format!("{n:.0e}"))
}

/// Returns an interval, `[416..431]`; empty when there is none.
pub(crate) fn interval(low: Option<ExtendedReal>, high: Option<ExtendedReal>) -> String {
    match (low, high) {
        (Some(low), Some(high)) => format!("[{}..{}]", digits(low), digits(high)),
        _ => String::new(),
    }
}

/// Returns the same in at most `width` columns, as [`digits_in`].
pub(crate) fn interval_in(
    low: Option<ExtendedReal>,
    high: Option<ExtendedReal>,
    width: usize,
) -> String {
    let whole = interval(low, high);
    let each = width.saturating_sub("[..]".len()) / 2;
    if whole.len() <= width {
        whole
    } else {
        format!("[{}..{}]", digits_in(low, each), digits_in(high, each))
    }
}

/// Returns `text` with every control character replaced, so that a file from elsewhere cannot steer
/// a terminal.
pub(crate) fn printable(text: &str) -> String {
    let steers =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if steers(c) { ' ' } else { c }).collect()
}

/// Returns `text` cut to `width` characters, the last one a full stop when something was cut.
pub(crate) fn fit(text: &str, width: usize) -> String {
    let text = printable(text);
    if text.chars().count() <= width {
        return text;
    }
    text.chars().take(width.saturating_sub(1)).chain(Some('.')).collect()
}

/// Returns `text` in lines of at most `width` characters, broken at spaces, never empty.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in printable(text).split_whitespace() {
        let line = lines.last_mut().expect("begins with one line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Returns `page` in lines of at most `width` characters. A line that is longer goes on below the
/// start of its last column in the left two thirds, or two characters to the right of its start.
pub(crate) fn fold(page: &str, width: usize) -> String {
    let mut folded = String::new();
    for line in page.lines() {
        if line.chars().count() <= width {
            folded.push_str(line);
            folded.push('\n');
            continue;
        }
        let head = head_of(line, width / 3 * 2);
        let indent = head.chars().count();
        let is_indent = head.trim().is_empty();
        let below = (indent + if is_indent { 2 } else { 0 }).min(width / 3 * 2);
        // The first of the lines is as narrow as those below it.
        for (number, part) in
            wrap(&line[head.len()..], width.saturating_sub(below)).iter().enumerate()
        {
            let before = if number == 0 { head.to_owned() } else { " ".repeat(below) };
            folded.push_str(&format!("{before}{part}\n"));
        }
    }
    folded
}

/// Returns `line` up to the start of its last column below `width`: columns are at least two
/// spaces apart. Returns the spaces before its text where there is one column.
fn head_of(line: &str, width: usize) -> &str {
    let text = line.len() - line.trim_start().len();
    let starts = line.match_indices("  ").map(|(at, _)| {
        let gap = line[at..].chars().take_while(|c| *c == ' ').count();
        at + gap
    });
    let is_near = |at: &usize| *at > text && line[..*at].chars().count() <= width;
    &line[..starts.filter(is_near).last().unwrap_or(text)]
}

/// Returns a number of bytes in the unit that keeps it readable.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64 / 1024.0;
    if bytes < 1024 {
        return Bytes(bytes).to_string();
    }
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    format!("{value:.1} {unit}")
}

/// Returns a label that is a number of bytes as people read it; other text stays, as older reports
/// have it.
pub(crate) fn length_shown(label: &str) -> String {
    label.parse().map_or_else(|_| label.to_owned(), |bytes| Bytes(bytes).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits__keeps_three_that_matter() {
        let cases = [
            (0.0, "0"),
            (0.0421, "0.042"),
            (0.999, "1.00"),
            (9.996, "10.0"),
            (28.31, "28.3"),
            (99.96, "100"),
            (11_956.4, "11956"),
            (-2.5, "-2.50"),
            (0.00012, "1e-4"),
            (2.5e12, "2.50e12"),
        ];
        for (number, expected) in cases {
            assert_eq!(digits(ExtendedReal::finite(number)), expected);
        }
        assert_eq!(digits(ExtendedReal::INFINITE), "inf");
    }

    #[test]
    fn digits_in__a_narrow_column_holds_fewer_digits_and_never_a_part_of_a_number() {
        let cases = [
            (0.0421, 4, "0.04"),
            (0.0006, 4, "6e-4"),
            (28.31, 4, "28.3"),
            (28.31, 3, "28"),
            (9.996, 4, "10.0"),
            (123_456.0, 5, "1e5"),
            (-0.042, 5, "-0.04"),
        ];
        for (number, width, expected) in cases {
            assert_eq!(digits_in(Some(ExtendedReal::finite(number)), width), expected);
        }
        assert_eq!(
            (digits_in(None, 4), digits_in(Some(ExtendedReal::INFINITE), 4)),
            ("-".to_owned(), "inf".to_owned())
        );
        let ends = [0.0421, 0.0514].map(|end| Some(ExtendedReal::finite(end)));
        assert_eq!(interval_in(ends[0], ends[1], 13), "[0.04..0.05]");
    }

    #[test]
    fn interval__with_an_open_end_says_so() {
        assert_eq!(
            interval(Some(ExtendedReal::finite(0.0)), Some(ExtendedReal::INFINITE)),
            "[0..inf]"
        );
        assert_eq!(interval(None, Some(ExtendedReal::INFINITE)), "");
    }

    #[test]
    fn printable__takes_escape_sequences_apart() {
        assert_eq!(printable("a\u{1b}[31mb\n\u{202e}c"), "a [31mb  c");
        assert_eq!(
            (fit("strict-priority", 8), fit("fifo", 8)),
            ("strict-.".to_owned(), "fifo".to_owned())
        );
    }

    #[test]
    fn size__has_the_unit_that_people_use() {
        assert_eq!([0, 1023].map(size), ["0 B", "1023 B"]);
        assert_eq!(
            [1024, 1 << 20, 3 << 29, u64::MAX].map(size),
            ["1.0 KiB", "1.0 MiB", "1.5 GiB", "16384.0 PiB"]
        );
    }

    #[test]
    fn fold__a_long_line_goes_on_below_its_last_column() {
        assert_eq!(fold("short\n\n  as it is\n", 12), "short\n\n  as it is\n");
        assert_eq!(fold("a one two three\n", 9), "a one\n  two\n  three\n");
        assert_eq!(fold("  a one two\n", 9), "  a one\n    two\n");
        assert_eq!(
            fold("name     5 GB/s  first second third\n", 30),
            "name     5 GB/s  first second\n                 third\n"
        );
        assert_eq!(fold("name  é one two\n", 11), "name  é one\n      two\n");
        assert_eq!(fold("unbreakable-word\n", 8), "unbreakable-word\n");
        assert_eq!(fold("         far\n", 8), "         far\n");
    }

    #[test]
    fn wrap__breaks_at_spaces_and_keeps_long_words() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("", 8), [""]);
        assert_eq!(wrap("unbreakable a", 4), ["unbreakable", "a"]);
    }
}
