//! Says how long a run of several parts will still take, and when to say it again.
//!
//! # Model
//! A part has a weight: seconds where its length is planned, else any unit. A unit takes the time
//! that those took which are done; before that, what the plan says, if it does:
//!
//! ```text
//!   left = units that are not done * time of a unit - time since that was known
//! ```
//!
//! # Invariants
//! I1. Parts that have not begun are never forgotten: what is left is at least their time.
//!
//! # Not here
//! Clock, thread and terminal: `run::remaining`.

use std::time::Duration;

/// What takes less needs no forecast.
const SHORT: Duration = Duration::from_secs(5);
/// Where nothing is planned, how long is watched before anything is said: the first events of a
/// simulation are its cheapest.
const WATCHED: Duration = Duration::from_secs(1);
/// Where nothing is planned, the part of all units from which on a time is inferred.
const KNOWN_FROM: f64 = 0.01;
/// The weight of the plan, as a part of all units: short parts take longer than planned and must not
/// decide the estimate of long ones.
const TRUSTED: f64 = 0.1;
/// How often a line is rewritten: as often as it can be read.
const EVERY: Duration = Duration::from_millis(500);

/// Where a forecast is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForecastPlace {
    /// In a line of a terminal that is written again and again.
    Terminal,
    /// In a file or a pipe, once.
    Lines,
}

/// What there is to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ForecastText {
    /// In place of the line that is there.
    Rewritten(String),
    /// As a line of its own.
    Line(String),
}

/// Knows how far a run is. Times are those since its beginning.
#[derive(Clone, Debug)]
pub(crate) struct Forecast {
    place: ForecastPlace,
    /// What a part is called.
    noun: &'static str,
    weights: Vec<f64>,
    /// How long a unit takes, where that is planned.
    planned: Option<Duration>,
    /// The part under way, from 1; 0 before the first.
    part: usize,
    what: String,
    /// Units that were done, and when.
    mark: (f64, Duration),
    /// When the line was written.
    written: Option<Duration>,
    /// Whether it looked long once; then the line stays.
    is_long: bool,
}

impl Forecast {
    /// Creates the forecast of parts with these weights; each unit takes `planned`, where that is
    /// known.
    pub(crate) fn new(
        place: ForecastPlace,
        noun: &'static str,
        weights: Vec<f64>,
        planned: Option<Duration>,
    ) -> Self {
        Self {
            place,
            noun,
            weights,
            planned,
            part: 0,
            what: String::new(),
            mark: (0.0, Duration::ZERO),
            written: None,
            is_long: false,
        }
    }

    /// Notes that the next part, which is `what`, begins `now`.
    pub(crate) fn begin_part(&mut self, now: Duration, what: String) {
        (self.part, self.what) = (self.part + 1, what);
        let done = self.weight(..self.part - 1);
        if done > self.mark.0 {
            self.mark = (done, now);
        }
        // Nobody waits for the name of what is under way.
        if self.place == ForecastPlace::Terminal {
            self.written = None;
        }
    }

    /// Notes that `fraction` of the part under way is done `now`.
    pub(crate) fn reach(&mut self, now: Duration, fraction: f64) {
        let before = self.weight(..self.part.saturating_sub(1));
        let done = before + (self.weight(..self.part) - before) * fraction.clamp(0.0, 1.0);
        if done > self.mark.0 {
            self.mark = (done, now);
        }
    }

    fn weight(&self, parts: std::ops::RangeTo<usize>) -> f64 {
        self.weights.iter().take(parts.end).sum()
    }

    fn total(&self) -> f64 {
        self.weights.iter().sum()
    }

    /// Returns how long a unit takes, in seconds.
    fn pace(&self) -> Option<f64> {
        let (done, at) = self.mark;
        match self.planned {
            Some(planned) => {
                let trusted = self.total() * TRUSTED;
                let whole = at.as_secs_f64() + trusted * planned.as_secs_f64();
                Some(whole / (done + trusted)).filter(|pace| pace.is_finite())
            }
            None => {
                let is_known = done > self.total() * KNOWN_FROM && at >= WATCHED;
                is_known.then(|| at.as_secs_f64() / done)
            }
        }
    }

    /// Returns how long it will take from `now` on, as far as that can be known.
    pub(crate) fn left(&self, now: Duration) -> Option<Duration> {
        let (pace, (done, at)) = (self.pace()?, self.mark);
        let since = now.saturating_sub(at).as_secs_f64();
        let later = (self.total() - self.weight(..self.part)) * pace;
        let left = ((self.total() - done) * pace - since).max(later).max(0.0);
        // A scenario may ask for years; so long a time is as good as any other.
        Some(Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX))
    }

    /// Returns what is to be written `now`, if anything is.
    pub(crate) fn step(&mut self, now: Duration) -> Option<ForecastText> {
        let left = self.left(now);
        let whole = left.map_or(now, |left| now.saturating_add(left));
        let is_due = match (self.place, self.written) {
            (ForecastPlace::Lines, written) => written.is_none() && left.is_some(),
            (ForecastPlace::Terminal, None) => true,
            (ForecastPlace::Terminal, Some(at)) => now.saturating_sub(at) >= EVERY,
        };
        self.is_long |= self.part > 0 && whole >= SHORT;
        if !self.is_long || !is_due {
            return None;
        }
        self.written = Some(now);
        Some(match self.place {
            ForecastPlace::Lines => {
                ForecastText::Line(format!("the run takes about {}", words(whole)))
            }
            ForecastPlace::Terminal => ForecastText::Rewritten(self.line(left)),
        })
    }

    fn line(&self, left: Option<Duration>) -> String {
        let Self { noun, part, what, .. } = self;
        let which = match self.weights.len().max(*part) {
            1 => what.clone(),
            all => format!("{noun} {part} of {all}, {what}"),
        };
        match left {
            Some(left) => format!("{which}: about {} left", words(left)),
            None => format!("{which} ..."),
        }
    }
}

/// Returns a length of time as a person says it: 18 s, 45 s, 4 min, 3 h 20 min.
fn words(time: Duration) -> String {
    let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    match seconds {
        0..20 => format!("{} s", seconds.max(1)),
        20..100 => format!("{} s", seconds.div_ceil(5) * 5),
        100..6000 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Returns a forecast of three parts of 10 s each, of which the first has begun.
    fn planned(place: ForecastPlace) -> Forecast {
        let mut forecast =
            Forecast::new(place, "cell", vec![10.0; 3], Some(Duration::from_secs(1)));
        forecast.begin_part(at(0.0), "strict, incast".to_owned());
        forecast
    }

    fn rewritten(text: &str) -> Option<ForecastText> {
        Some(ForecastText::Rewritten(text.to_owned()))
    }

    #[test]
    fn left__is_the_plan_until_a_part_took_longer() {
        let mut forecast = planned(ForecastPlace::Terminal);
        assert_eq!(forecast.left(at(0.0)), Some(at(30.0)));
        assert_eq!(forecast.left(at(4.0)), Some(at(26.0)));
        assert_eq!(forecast.left(at(15.0)), Some(at(20.0)), "the first is late, two are to come");
        forecast.begin_part(at(20.0), "fifo".to_owned());
        let rounded = |left: Option<Duration>| left.map(|left| left.as_secs_f64().round());
        let left = forecast.left(at(20.0));
        assert_eq!(rounded(left), Some(35.0), "23 s for 13 units, and 20 are left");
        forecast.begin_part(at(30.0), "fifo".to_owned());
        assert_eq!(rounded(forecast.left(at(30.0))), Some(14.0), "33 s for 23 units");
        assert_eq!(forecast.left(at(90.0)), Some(at(0.0)));
    }

    #[test]
    fn left__without_a_plan_is_known_when_something_was_done() {
        let mut forecast = Forecast::new(ForecastPlace::Terminal, "cell", vec![1.0; 2], None);
        forecast.begin_part(at(0.0), "incast".to_owned());
        assert_eq!(forecast.left(at(8.0)), None);
        forecast.reach(at(0.5), 0.2);
        assert_eq!(forecast.left(at(0.5)), None, "too early to tell");
        forecast.reach(at(10.0), 0.5);
        assert_eq!(forecast.left(at(10.0)), Some(at(30.0)));
        forecast.reach(at(11.0), 0.4);
        assert_eq!(forecast.left(at(11.0)), Some(at(29.0)), "nothing becomes undone");
    }

    #[test]
    fn step__rewrites_the_line_of_a_terminal_twice_a_second() {
        let mut forecast = planned(ForecastPlace::Terminal);
        let first = "cell 1 of 3, strict, incast: about 30 s left";
        assert_eq!(forecast.step(at(0.0)), rewritten(first));
        assert_eq!(forecast.step(at(0.4)), None);
        assert_eq!(forecast.step(at(0.5)), rewritten(first));
        forecast.begin_part(at(0.6), "fifo, incast".to_owned());
        let next = forecast.step(at(0.6));
        assert_eq!(next, rewritten("cell 2 of 3, fifo, incast: about 6 s left"));
    }

    #[test]
    fn step__says_once_how_long_it_takes_where_nothing_is_rewritten() {
        let mut forecast = planned(ForecastPlace::Lines);
        let line = ForecastText::Line("the run takes about 30 s".to_owned());
        assert_eq!(forecast.step(at(0.0)), Some(line));
        forecast.begin_part(at(9.0), "fifo".to_owned());
        assert_eq!(forecast.step(at(9.0)), None);
    }

    #[test]
    fn step__says_nothing_of_what_is_over_in_5_s() {
        for place in [ForecastPlace::Terminal, ForecastPlace::Lines] {
            let mut forecast =
                Forecast::new(place, "cell", vec![4.9], Some(Duration::from_secs(1)));
            assert_eq!(forecast.step(at(0.0)), None, "before the first part");
            forecast.begin_part(at(0.0), "incast".to_owned());
            assert_eq!(forecast.step(at(0.0)), None);
        }
    }

    #[test]
    fn step__names_the_part_where_the_time_is_not_known() {
        let mut forecast = Forecast::new(ForecastPlace::Terminal, "seed", vec![1.0; 2], None);
        forecast.begin_part(at(0.0), "dfs".to_owned());
        assert_eq!(forecast.step(at(4.0)), None);
        assert_eq!(forecast.step(at(5.0)), rewritten("seed 1 of 2, dfs ..."));
    }

    #[test]
    fn words__are_those_of_people() {
        let said = [0.0, 0.2, 19.0, 19.5, 41.0, 99.5, 61.0 * 60.0, 7265.0].map(|s| words(at(s)));
        assert_eq!(said, ["1 s", "1 s", "19 s", "20 s", "45 s", "2 min", "61 min", "2 h 1 min"]);
        assert!(words(Duration::MAX).ends_with("min"));
    }
}
