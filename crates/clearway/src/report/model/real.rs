//! A number of a report: finite or infinite, never NaN, and JSON can write it.

use std::fmt;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// How JSON writes infinity.
const INFINITY: &str = "inf";

/// A finite number or infinity: the latency of what never came back, the end of an interval that
/// the data leave open.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct ExtendedReal(f64);

impl ExtendedReal {
    /// What never came back.
    pub(crate) const INFINITE: Self = Self(f64::INFINITY);

    /// Returns `value`, unless it is NaN or minus infinity.
    pub(crate) fn new(value: f64) -> Option<Self> {
        (value > f64::NEG_INFINITY).then_some(Self(value))
    }

    /// Returns `value`, where what is no number counts as endless.
    pub(crate) fn or_infinite(value: f64) -> Self {
        Self::new(value).unwrap_or(Self::INFINITE)
    }

    /// Creates a number that is known to be finite.
    ///
    /// # Panics
    /// When it is not: that is a defect of the caller.
    pub(crate) fn finite(value: f64) -> Self {
        assert!(value.is_finite(), "{value} is not finite");
        Self(value)
    }

    /// Returns the number, `f64::INFINITY` included.
    pub(crate) const fn get(self) -> f64 {
        self.0
    }

    /// Returns whether it is not infinite.
    pub(crate) const fn is_finite(self) -> bool {
        self.0.is_finite()
    }
}

/// Digits behind the first that a report keeps: six in all are a hundred times finer than any
/// measurement here.
const DIGITS: usize = 5;

/// Returns `value` in as many digits as a report keeps, so that arithmetic's last bits do not look
/// like precision. Whole numbers are counts and stay as they are.
pub(crate) fn rounded(value: f64) -> f64 {
    if value.fract() == 0.0 || !value.is_finite() {
        return value;
    }
    format!("{value:.DIGITS$e}").parse().unwrap_or(value)
}

/// Writes a plain number of a report as [`ExtendedReal`] does.
///
/// # Errors
/// Those of the serializer.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
pub(crate) fn write_rounded<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(rounded(*value))
}

impl Serialize for ExtendedReal {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.is_finite() {
            to.serialize_f64(rounded(self.0))
        } else {
            to.serialize_str(INFINITY)
        }
    }
}

impl<'de> Deserialize<'de> for ExtendedReal {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(RealVisitor)
    }
}

struct RealVisitor;

impl Visitor<'_> for RealVisitor {
    type Value = ExtendedReal;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or \"inf\"")
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<ExtendedReal, E> {
        ExtendedReal::new(value).ok_or_else(|| E::custom("a number must not be NaN"))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<ExtendedReal, E> {
        Ok(ExtendedReal(value as f64))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<ExtendedReal, E> {
        Ok(ExtendedReal(value as f64))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ExtendedReal, E> {
        if text == INFINITY {
            Ok(ExtendedReal::INFINITE)
        } else {
            Err(E::invalid_value(serde::de::Unexpected::Str(text), &self))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json__writes_infinity_as_a_word_and_reads_it_back() {
        let written = serde_json::to_string(&[
            Some(ExtendedReal::INFINITE),
            Some(ExtendedReal::finite(1.5)),
            None,
        ])
        .expect("written");
        assert_eq!(written, r#"["inf",1.5,null]"#);
        let read: [Option<ExtendedReal>; 3] =
            serde_json::from_str(r#"["inf", -2, null]"#).expect("read");
        assert_eq!(read, [Some(ExtendedReal::INFINITE), Some(ExtendedReal::finite(-2.0)), None]);
    }

    #[test]
    fn json__keeps_six_digits_and_every_count() {
        let numbers = [
            10.623_000_000_000_001,
            1_921.628_967_294,
            0.000_123_456_789,
            11_927.551,
            123_456_789.0,
            0.0,
        ];
        let written = serde_json::to_string(&numbers.map(ExtendedReal::finite)).expect("written");
        assert_eq!(written, "[10.623,1921.63,0.000123457,11927.6,123456789.0,0.0]");
        let read: [ExtendedReal; 6] = serde_json::from_str(&written).expect("read");
        assert_eq!(serde_json::to_string(&read).expect("written again"), written);
    }

    #[test]
    fn json__refuses_other_words_with_what_would_work() {
        let sentence =
            serde_json::from_str::<ExtendedReal>("\"Infinity\"").expect_err("refused").to_string();
        assert!(sentence.contains("expected a number or \"inf\""), "{sentence}");
        assert!(
            ExtendedReal::new(f64::NAN).is_none() && ExtendedReal::new(f64::NEG_INFINITY).is_none()
        );
    }
}
