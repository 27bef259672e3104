//! `--metrics`: figures of this process for monitoring systems, as OpenMetrics over HTTP.
//!
//! # Model
//! A command gives a [`MetricSource`], which writes the figures that it has anyway. One thread
//! (`scrape_server`) answers who asks. A text is made when somebody asks, and given again for some
//! time: however often and by however many it is asked for, making it takes a small part of a
//! processor.
//!
//! # Invariants
//! I1. No scraper delays what the command does, but for the time in which its figures are copied.
//!
//! # Not here
//! The figures: they are with the commands that have them.

mod scrape_server;
mod sheet;

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use scrape_server::ScrapeServer;
pub(crate) use sheet::{MetricLabels, MetricSheet, MetricTitle, MetricUnit};

/// How long a text is given again, at least: shorter than anybody scrapes.
const TEXT_AGE: Duration = Duration::from_millis(100);
/// The same as a multiple of the time that making it took: scrapers cost two per cent of a
/// processor at most.
const TEXT_AGE_RATIO: u32 = 50;

/// What has figures.
pub(crate) trait MetricSource: Send + Sync {
    /// Writes the figures as they are now.
    ///
    /// # Errors
    /// The sheet's.
    fn write(&self, sheet: &mut MetricSheet<'_>) -> fmt::Result;
}

/// Where metrics are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetricsAddress(SocketAddr);

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(port) = text.parse::<u16>() {
            return Ok(Self(SocketAddr::from(([127, 0, 0, 1], port))));
        }
        text.parse().map(Self).map_err(|_| {
            "give ADDR:PORT, as in 10.0.0.7:27183, or [::]:27183 for all interfaces, or a port of the loopback alone".to_owned()
        })
    }
}

/// An address that is taken, so that what is wrong with it is known before anything begins.
pub(crate) struct MetricsListener(TcpListener);

impl MetricsListener {
    /// Takes `address`, if one is wanted.
    ///
    /// # Errors
    /// One sentence: the address cannot be had.
    pub(crate) fn bind(address: Option<MetricsAddress>) -> Result<Option<Self>> {
        let Some(MetricsAddress(address)) = address else { return Ok(None) };
        let listener = TcpListener::bind(address);
        let listener =
            listener.with_context(|| format!("metrics cannot be served at {address}"))?;
        Ok(Some(Self(listener)))
    }

    /// Serves the figures of `source`, which belong to `command`.
    ///
    /// # Errors
    /// No thread, or no descriptor.
    pub(crate) fn serve(
        self,
        command: &'static str,
        source: Arc<dyn MetricSource>,
    ) -> Result<MetricsEndpoint> {
        let mut text = HeldText::new(Box::new(move || sheet::text(command, &source)));
        let server = ScrapeServer::open(self.0, move || text.get(Instant::now()));
        Ok(MetricsEndpoint(server.context("metrics cannot be served")?))
    }

    /// Serves as [`MetricsListener::serve`], and says where on standard error.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn announce(
        this: Option<Self>,
        command: &'static str,
        source: Arc<dyn MetricSource>,
    ) -> Result<Option<MetricsEndpoint>> {
        let endpoint = this.map(|this| this.serve(command, source)).transpose()?;
        if let Some(endpoint) = &endpoint {
            eprintln!("metrics: {}", endpoint.place());
        }
        Ok(endpoint)
    }
}

/// A place where metrics are served until it is dropped.
pub(crate) struct MetricsEndpoint(ScrapeServer);

impl MetricsEndpoint {
    /// Returns where, for a person.
    pub(crate) fn place(&self) -> String {
        format!("http://{}{}", self.0.address(), scrape_server::PATH)
    }
}

/// A text that is made anew when it is old.
struct HeldText {
    make: Box<dyn FnMut() -> String + Send>,
    text: Arc<str>,
    good_until: Option<Instant>,
}

impl HeldText {
    fn new(make: Box<dyn FnMut() -> String + Send>) -> Self {
        Self { make, text: Arc::from(""), good_until: None }
    }

    fn get(&mut self, now: Instant) -> Arc<str> {
        if self.good_until.is_none_or(|until| now >= until) {
            self.text = (self.make)().into();
            let took = now.elapsed();
            self.good_until = Some(now + took + TEXT_AGE.max(took * TEXT_AGE_RATIO));
        }
        Arc::clone(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_address__a_port_alone_is_on_the_loopback() {
        let read = |text: &str| text.parse::<MetricsAddress>().map(|address| address.0.to_string());
        assert_eq!(read("27183").as_deref(), Ok("127.0.0.1:27183"));
        assert_eq!(read("0.0.0.0:27183").as_deref(), Ok("0.0.0.0:27183"));
        assert_eq!(read("[::1]:1").as_deref(), Ok("[::1]:1"));
        for text in ["", ":27183", "10.0.0.7", "65536", "10.0.0.7:x", "-1"] {
            let why = read(text).expect_err(text);
            assert!(why.starts_with("give ADDR:PORT"), "{why}");
        }
    }

    #[test]
    fn get__a_text_is_given_again_until_it_is_old() {
        let mut count = 0;
        let mut text = HeldText::new(Box::new(move || {
            count += 1;
            count.to_string()
        }));
        let now = Instant::now();
        assert_eq!((&*text.get(now), &*text.get(now + TEXT_AGE / 2)), ("1", "1"));
        let until = text.good_until.expect("it is good for some time");
        assert_eq!(&*text.get(until), "2");
    }

    #[test]
    fn bind__an_address_that_is_taken_is_refused_in_one_sentence() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = MetricsAddress(taken.local_addr().expect("bound"));
        let why = MetricsListener::bind(Some(address)).err().expect("it is taken");
        let why = format!("{why:#}");
        assert!(
            why.starts_with("metrics cannot be served at 127.0.0.1:") && why.contains("in use"),
            "{why}"
        );
    }
}
