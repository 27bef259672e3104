//! Serves metrics of this process to monitoring systems (`--metrics`), as OpenMetrics over HTTP.
//!
//! # Model
//! A command gives a [`MetricSource`], which writes the command's figures. One thread
//! (`scrape_server`) answers all scrapers. It makes the text for a request and caches it for some
//! time, so that frequent requests cost a small part of a processor.
//!
//! # Invariants
//! I1. A scraper delays the command at most while the figures are copied.
//!
//! # Not here
//! The figures: each command defines its own.

mod scrape_server;
mod sheet;

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::run::notice;
use scrape_server::ScrapeServer;
pub(crate) use sheet::{MetricLabels, MetricSheet, MetricTitle, MetricUnit};

/// The shortest life of a cached text: shorter than intervals of scrapers.
const TEXT_AGE: Duration = Duration::from_millis(100);
/// The life of a cached text as a multiple of the time that making it took: scrapers cost at most
/// two per cent of a processor.
const TEXT_AGE_RATIO: u32 = 50;

/// A source of figures.
pub(crate) trait MetricSource: Send + Sync {
    /// Writes the figures as they are now.
    ///
    /// # Errors
    /// The sheet refuses a figure.
    fn write(&self, sheet: &mut MetricSheet<'_>) -> fmt::Result;
}

/// The address at which metrics are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetricsAddress(SocketAddr);

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(port) = text.parse::<u16>() {
            return Ok(Self(SocketAddr::from(([127, 0, 0, 1], port))));
        }
        text.parse().map(Self).map_err(|_| {
            "give ADDR:PORT, as in 10.0.0.7:9464, [::]:9464 for all interfaces, or only PORT for the loopback".to_owned()
        })
    }
}

/// A bound address. It is bound early, so that an error is known before the command begins.
pub(crate) struct MetricsListener(TcpListener);

impl MetricsListener {
    /// Binds `address`, if there is one.
    ///
    /// # Errors
    /// The address cannot be bound; the sentence says why.
    pub(crate) fn bind(address: Option<MetricsAddress>) -> Result<Option<Self>> {
        let Some(MetricsAddress(address)) = address else { return Ok(None) };
        let listener = TcpListener::bind(address).map_err(|cause| {
            anyhow!(
                "metrics cannot be served at {address}: {cause}; use an address of this host and a free port"
            )
        })?;
        Ok(Some(Self(listener)))
    }

    /// Serves the figures of `source`, which belong to `command`.
    ///
    /// # Errors
    /// The system has no room for a thread or a descriptor.
    pub(crate) fn serve(
        self,
        command: &'static str,
        source: Arc<dyn MetricSource>,
    ) -> Result<MetricsEndpoint> {
        let mut text = HeldText::new(Box::new(move || sheet::text(command, &source)));
        let server = ScrapeServer::open(self.0, move || text.get(Instant::now()));
        Ok(MetricsEndpoint(server.context("metrics cannot be served")?))
    }

    /// Serves as [`MetricsListener::serve`], and prints the URL on standard error.
    ///
    /// # Errors
    /// As [`MetricsListener::serve`].
    pub(crate) fn announce(
        this: Option<Self>,
        command: &'static str,
        source: Arc<dyn MetricSource>,
    ) -> Result<Option<MetricsEndpoint>> {
        let endpoint = this.map(|this| this.serve(command, source)).transpose()?;
        if let Some(endpoint) = &endpoint {
            notice!("metrics: {}", endpoint.place());
        }
        Ok(endpoint)
    }
}

/// A running server of metrics, which stops when this is dropped.
pub(crate) struct MetricsEndpoint(ScrapeServer);

impl MetricsEndpoint {
    /// Returns its URL.
    pub(crate) fn place(&self) -> String {
        format!("http://{}{}", self.0.address(), scrape_server::PATH)
    }
}

/// A cached text, which is made again when it is too old.
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
