//! What was delivered, as one number for each host and window of time.
//!
//! # Invariants
//! I1. A sum: the order in which equal instants are processed does not show, what happens in them
//!     does.

/// Windows in which two runs can be distinguished: 2^30 ps, about a millisecond.
const WINDOW_SHIFT: u32 = 30;

/// Returns the finaliser of SplitMix64 (Steele, Lea, Flood 2014).
pub(super) const fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Computes 128 bits from one delivery.
fn value(host: u32, message: u64, number: u32, at: u64) -> u128 {
    let low = mix(message ^ mix(at ^ (u64::from(number) << 44)));
    let high = mix(low ^ u64::from(host));
    u128::from(high) << 64 | u128::from(low)
}

/// Digests of a run so far.
#[derive(Debug)]
pub(super) struct FabricDigest {
    hosts: Vec<u128>,
    windows: Vec<u128>,
}

impl FabricDigest {
    pub(super) fn new(hosts: u32) -> Self {
        Self { hosts: vec![0; hosts as usize], windows: Vec::new() }
    }

    /// Adds that packet `number` of `message` reaches `host` at `at`.
    #[inline]
    pub(super) fn delivered(&mut self, host: u32, message: u64, number: u32, at: u64) {
        self.add(host, at, value(host, message, number, at));
    }

    /// Takes back that it does.
    pub(super) fn not_delivered(&mut self, host: u32, message: u64, number: u32, at: u64) {
        self.add(host, at, value(host, message, number, at).wrapping_neg());
    }

    fn add(&mut self, host: u32, at: u64, value: u128) {
        self.hosts[host as usize] = self.hosts[host as usize].wrapping_add(value);
        // Runs of a minute would not fit into windows; what lies behind shares the last one.
        let window = ((at >> WINDOW_SHIFT) as usize).min(1 << 16);
        if window >= self.windows.len() {
            self.windows.resize(window + 1, 0);
        }
        self.windows[window] = self.windows[window].wrapping_add(value);
    }

    pub(super) fn total(&self) -> u128 {
        self.hosts.iter().fold(0, |sum, value| sum.wrapping_add(*value))
    }

    pub(super) fn by_host(&self) -> &[u128] {
        &self.hosts
    }

    pub(super) fn by_window(&self) -> &[u128] {
        &self.windows
    }
}
