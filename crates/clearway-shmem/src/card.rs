//! What each PE tells all others when the job begins, and whether they fit together.

use std::fs;

use clearway_proto::base::ByteReader;

/// What a card begins with.
const MAGIC: [u8; 8] = *b"cwshmem\x01";
/// The library's version; PEs of another one have other lines and other offsets.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Bytes of a name on a card.
const NAME: usize = 64;
/// Processors that a card can name.
const PROCESSORS: usize = 1_024;

/// One PE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) version: String,
    pub(crate) host: String,
    /// The machine's boot, the network namespace, the user: PEs with the same can share memory.
    ground: [u64; 3],
    /// The name of its entrance.
    pub(crate) entrance: u64,
    /// `SHMEM_SYMMETRIC_SIZE`, 0 without.
    pub(crate) heap_wish: u64,
    /// What it would take without.
    pub(crate) heap_default: u64,
    /// The length of its variables, 0 where they stay private, and its executable.
    pub(crate) statics: u64,
    pub(crate) build: u64,
    pub(crate) process: u64,
    /// The processors that it may use.
    processors: [u64; PROCESSORS / 64],
}

impl Card {
    /// Of this process; the caller fills in what it knows.
    pub(crate) fn of_process() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let link = |path: &str| {
            fs::read_link(path).map(|link| link.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let user = fs::metadata("/proc/self")
            .map_or(0, |own| u64::from(std::os::unix::fs::MetadataExt::uid(&own)));
        let ground = [
            hash(&text("/proc/sys/kernel/random/boot_id")),
            hash(&link("/proc/self/ns/net")),
            user,
        ];
        Self {
            version: VERSION.to_owned(),
            host: text("/proc/sys/kernel/hostname"),
            ground,
            entrance: 0,
            heap_wish: 0,
            heap_default: 0,
            statics: 0,
            build: 0,
            process: u64::from(std::process::id()),
            processors: processors(&text("/proc/thread-self/status")),
        }
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for name in [&self.version, &self.host] {
            let mut place = [0; NAME];
            place.iter_mut().zip(name.bytes().take(NAME)).for_each(|(place, byte)| *place = byte);
            bytes.extend(place);
        }
        let numbers = [
            self.entrance,
            self.heap_wish,
            self.heap_default,
            self.statics,
            self.build,
            self.process,
        ];
        for number in self.ground.iter().chain(&numbers).chain(&self.processors) {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    /// Reads a card; `None` for what is none.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = ByteReader::new(bytes);
        if rest.take()? != MAGIC {
            return None;
        }
        let mut name = || {
            let bytes: [u8; NAME] = rest.take()?;
            let text: Vec<u8> = bytes.into_iter().take_while(|byte| *byte != 0).collect();
            Some(String::from_utf8_lossy(&text).into_owned())
        };
        let (version, host) = (name()?, name()?);
        let mut number = || rest.u64();
        let ground = [number()?, number()?, number()?];
        let (entrance, heap_wish, heap_default) = (number()?, number()?, number()?);
        let (statics, build, process) = (number()?, number()?, number()?);
        let mut processors = [0; PROCESSORS / 64];
        for word in &mut processors {
            *word = number()?;
        }
        let card = Self {
            version,
            host,
            ground,
            entrance,
            heap_wish,
            heap_default,
            statics,
            build,
            process,
            processors,
        };
        rest.is_empty().then_some(card)
    }

    /// Whether the two can share memory.
    fn is_near(&self, other: &Self) -> bool {
        self.ground == other.ground
    }
}

/// All cards, checked.
#[derive(Debug)]
pub(crate) struct Cards(pub(crate) Vec<Card>);

impl Cards {
    /// Reads those of all PEs, of which `me` is this one.
    ///
    /// # Errors
    /// The sentence why they cannot be one program.
    pub(crate) fn parse(all: &[Vec<u8>], me: usize) -> Result<Self, String> {
        let cards = all.iter().enumerate().map(|(pe, bytes)| {
            Card::parse(bytes).ok_or_else(|| {
                format!("PE {pe} uses another OpenSHMEM library; start all PEs with the same")
            })
        });
        let cards = cards.collect::<Result<Vec<_>, _>>()?;
        let own = &cards[me];
        for (pe, card) in cards.iter().enumerate() {
            if card.version != own.version {
                return Err(format!(
                    "PE {pe} uses version {} of this library and PE {me} version {}; start all PEs with the same",
                    card.version, own.version
                ));
            }
            if !card.is_near(own) {
                return Err(format!(
                    "PE {pe} (host {}) and PE {me} (host {}) cannot share memory: they are on different hosts, in different \
                     network namespaces or of different users; start all PEs on one host",
                    card.host, own.host
                ));
            }
        }
        Ok(Self(cards))
    }

    /// The heap that all have.
    ///
    /// # Errors
    /// The sentence for PEs that ask for different ones.
    pub(crate) fn heap(&self) -> Result<usize, String> {
        let wish = self.0[0].heap_wish;
        if let Some(pe) = self.0.iter().position(|card| card.heap_wish != wish) {
            return Err(format!(
                "SHMEM_SYMMETRIC_SIZE is {wish} bytes for PE 0 and {} for PE {pe}; set the same for all",
                self.0[pe].heap_wish
            ));
        }
        let least = self.0.iter().map(|card| card.heap_default).min().unwrap_or_default();
        Ok(if wish > 0 { wish } else { least } as usize)
    }

    /// Whether all run the same executable and share its variables.
    pub(crate) fn share_statics(&self) -> bool {
        let first = &self.0[0];
        first.statics > 0
            && self.0.iter().all(|card| (card.statics, card.build) == (first.statics, first.build))
    }

    /// How many processors all have together.
    pub(crate) fn processors(&self) -> usize {
        let mut all = [0; PROCESSORS / 64];
        for card in &self.0 {
            all.iter_mut().zip(card.processors).for_each(|(all, own)| *all |= own);
        }
        all.iter().map(|word| word.count_ones() as usize).sum::<usize>().max(1)
    }
}

/// A number for a text (FNV-1a).
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The processors of a `status` of `proc(5)`: words of 32 bits in hexadecimal digits, the highest
/// first.
fn processors(status: &str) -> [u64; PROCESSORS / 64] {
    let mut all = [0; PROCESSORS / 64];
    let line =
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:")).unwrap_or_default();
    for (at, word) in line.trim().split(',').rev().enumerate().take(PROCESSORS / 32) {
        all[at / 2] |=
            u64::from(u32::from_str_radix(word, 16).unwrap_or_default()) << (32 * (at % 2));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cards(change: impl Fn(&mut Card)) -> Vec<Vec<u8>> {
        let own = Card { heap_default: 64, statics: 8, ..Card::of_process() };
        let mut other = own.clone();
        change(&mut other);
        vec![own.bytes(), other.bytes()]
    }

    #[test]
    fn parse__a_card_comes_back_and_anything_else_does_not() {
        let card = Card { entrance: 5, heap_wish: 6, statics: 7, build: 8, ..Card::of_process() };
        let bytes = card.bytes();
        assert_eq!(Card::parse(&bytes), Some(card));
        assert_eq!(Card::parse(&bytes[1..]), None);
        assert_eq!(Card::parse(&[&bytes[..], b"x"].concat()), None);
    }

    #[test]
    fn parse__who_does_not_fit_is_named() {
        let sentence = |change: fn(&mut Card)| Cards::parse(&cards(change), 0).unwrap_err();
        assert!(
            sentence(|card| card.version = "9".to_owned())
                .starts_with("PE 1 uses version 9 of this library and PE 0 ")
        );
        assert!(sentence(|card| card.ground[1] += 1).starts_with("PE 1 (host "));
        let foreign = [Card::of_process().bytes(), b"else".to_vec()];
        assert!(
            Cards::parse(&foreign, 0)
                .unwrap_err()
                .starts_with("PE 1 uses another OpenSHMEM library")
        );
    }

    #[test]
    fn heap__is_the_wish_of_all_or_the_least_default() {
        let heap =
            |change: fn(&mut Card)| Cards::parse(&cards(change), 0).expect("they fit").heap();
        assert_eq!(heap(|card| card.heap_default = 40), Ok(40));
        assert!(
            heap(|card| card.heap_wish = 3)
                .unwrap_err()
                .contains("0 bytes for PE 0 and 3 for PE 1")
        );
        let shared = |change: fn(&mut Card)| {
            Cards::parse(&cards(change), 0).expect("they fit").share_statics()
        };
        assert_eq!(
            [shared(|_| {}), shared(|card| card.build = 1), shared(|card| card.statics = 0)],
            [true, false, false]
        );
    }

    #[test]
    fn processors__are_read_from_words_with_the_highest_first() {
        let all = processors("Name: x\nCpus_allowed:\t3,00000000,80000001\n");
        assert_eq!((all[0], all[1]), (0x8000_0001, 3));
    }
}
