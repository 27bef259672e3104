//! Staging while an application runs: the parts of `flow` that set its rate and its class, combined.

use clearway_proto::base::{BitsPerSec, Bytes, Class, LocalNs, Nanos};
use clearway_proto::flow::{
    ClassPromotion, DeadlineQueue, ExcessCause, ProbeMoment, YieldController, YieldReport,
};

const LINK: BitsPerSec = BitsPerSec(1_000_000_000);
/// Staging above this rate makes the application slower, in proportion.
const KNEE: u64 = LINK.0 / 10;

/// Files that wait, a link, and an application whose messages are timed all the time.
struct StagingHost {
    now: LocalNs,
    controller: YieldController,
    promotion: ClassPromotion,
    waiting: DeadlineQueue<u64>,
    /// How late each file was that left.
    late: Vec<u64>,
}

impl StagingHost {
    fn new() -> Self {
        Self {
            now: LocalNs(0),
            controller: YieldController::new(LocalNs(0), LINK, 50),
            promotion: ClassPromotion::new(Class::Scavenger),
            waiting: DeadlineQueue::default(),
            late: Vec::new(),
        }
    }

    /// Passes the time between two reviews: probes, traffic at the permitted rate, decisions. The
    /// class below best effort gets a twentieth of the link.
    fn step(&mut self) -> YieldReport {
        self.controller.set_floor(self.waiting.rate_needed(self.now.0));
        let share = if self.promotion.class() == Class::BestEffort { 1 } else { 20 };
        let rate = BitsPerSec(self.controller.rate().0.min(LINK.0 / share));
        let slower = rate.0.saturating_sub(KNEE) * 1_000 / KNEE;
        let is_sending = !self.waiting.is_empty();
        for probe in 0..50 {
            let is_paused = probe % 10 == 9 || !is_sending;
            let (moment, extra) =
                if is_paused { (ProbeMoment::Paused, 0) } else { (ProbeMoment::Sending, slower) };
            self.controller.sample(moment, Nanos(10_000 + 10 * extra));
        }
        self.now += ClassPromotion::REVIEW;
        let budget = rate.bytes_in(ClassPromotion::REVIEW).0;
        let mut left = budget;
        while let Some((deadline, size)) = self.waiting.pop_first(|_| true) {
            if size > left {
                self.waiting.push(deadline, Bytes(size - left), size - left);
                left = 0;
                break;
            }
            left -= size;
            self.late.push(self.now.0.saturating_sub(deadline));
        }
        self.promotion.review(self.now.0, &self.waiting, (left == 0).then_some(rate));
        self.controller.tick(self.now).expect("a decision")
    }
}

#[test]
fn staging__without_a_deadline_it_stays_where_it_harms_nobody() {
    let mut host = StagingHost::new();
    host.waiting.push(u64::MAX, Bytes(1 << 40), 1 << 40);
    let reports: Vec<_> = (0..100).map(|_| host.step()).collect();
    assert_eq!(host.promotion.class(), Class::Scavenger);
    assert!(reports.iter().all(|report| report.cause != ExcessCause::Others));
    assert!(reports.iter().all(|report| report.for_deadline == BitsPerSec(0)));
}

#[test]
fn staging__a_deadline_is_kept_at_a_price_that_is_reported_and_then_the_application_is_spared() {
    let mut host = StagingHost::new();
    // Needs 40 % of the link for ten seconds.
    host.waiting.push(10_000_000_000, Bytes(500_000_000), 500_000_000);
    let mut reports = Vec::new();
    while host.late.is_empty() && reports.len() < 400 {
        reports.push(host.step());
    }
    assert_eq!((host.late.as_slice(), host.promotion.class()), ([0].as_slice(), Class::BestEffort));
    let priced = reports.iter().filter(|report| report.for_deadline.0 > 0);
    assert!(priced.clone().count() > reports.len() / 2, "{reports:?}");
    assert!(priced.clone().any(|report| report.excess_permille > 1_000), "{reports:?}");
    host.waiting.push(u64::MAX, Bytes(1 << 40), 1 << 40);
    let after: Vec<_> = (0..100).map(|_| host.step()).collect();
    assert_eq!(host.promotion.class(), Class::Scavenger);
    assert!(after[10..].iter().all(|report| report.for_deadline == BitsPerSec(0)), "{after:?}");
}
