//! Fields of a report that one mechanism alone understands: a report keeps them as they are, and
//! gives them out by their type.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Report;

/// What one mechanism alone puts into a report, as a field of the report.
pub(crate) trait ReportPart: Serialize + DeserializeOwned {
    /// The field.
    const NAME: &'static str;
}

impl Report {
    /// Returns the part `P`, if the report has it and it can be read.
    pub(crate) fn part<P: ReportPart>(&self) -> Option<P> {
        self.read_part().ok().flatten()
    }

    /// Puts `part` in, in place of one of the same name.
    pub(crate) fn set_part<P: ReportPart>(&mut self, part: &P) {
        let value = serde_json::to_value(part)
            .expect("keys of a part are words, which JSON can always hold");
        self.parts.insert(P::NAME.to_owned(), value);
    }

    /// Refuses a part `P` that cannot be read.
    ///
    /// # Errors
    /// The name of the part and what is wrong with it.
    pub(crate) fn check_part<P: ReportPart>(&self) -> Result<(), String> {
        self.read_part::<P>().map(drop).map_err(|why| format!("{}: {why}", P::NAME))
    }

    fn read_part<P: ReportPart>(&self) -> serde_json::Result<Option<P>> {
        self.parts.get(P::NAME).filter(|value| !value.is_null()).map(P::deserialize).transpose()
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::report::model::{ExtendedReal, write_rounded};
    use crate::report::sample;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct TestPart {
        ends: [ExtendedReal; 2],
        #[serde(serialize_with = "write_rounded")]
        plain: f64,
        count: u64,
    }

    impl ReportPart for TestPart {
        const NAME: &'static str = "toy";
    }

    fn toy() -> TestPart {
        TestPart {
            ends: [ExtendedReal::finite(1_921.628_967), ExtendedReal::INFINITE],
            plain: 2.0 / 3.0,
            count: u64::MAX,
        }
    }

    #[test]
    fn set_part__is_a_field_with_the_digits_of_any_other() {
        let mut report = sample::incast_demo();
        report.set_part(&toy());
        let json = serde_json::to_string(&report).expect("written");
        let end =
            r#","toy":{"count":18446744073709551615,"ends":[1921.63,"inf"],"plain":0.666667}}"#;
        assert!(json.ends_with(end), "{}", &json[json.len() - 200..]);
        let read: Report = serde_json::from_str(&json).expect("read");
        assert_eq!(read, report);
        let rounded = TestPart {
            ends: [ExtendedReal::finite(1_921.63), ExtendedReal::INFINITE],
            plain: 0.666_667,
            ..toy()
        };
        assert_eq!(read.part::<TestPart>(), Some(rounded));
        assert_eq!(serde_json::to_string(&read).expect("written again"), json);
    }

    #[test]
    fn check_part__refuses_only_what_is_there_and_something_else() {
        let mut report = sample::incast_demo();
        assert_eq!((report.part::<TestPart>(), report.check_part::<TestPart>()), (None, Ok(())));
        report.parts.insert("toy".to_owned(), serde_json::Value::Null);
        assert_eq!((report.part::<TestPart>(), report.check_part::<TestPart>()), (None, Ok(())));
        report.parts.insert("toy".to_owned(), serde_json::json!({ "ends": [1, 2] }));
        let refused = report.check_part::<TestPart>().expect_err("refused");
        assert_eq!(
            (report.part::<TestPart>(), refused.as_str()),
            (None, "toy: missing field `plain`")
        );
    }
}
