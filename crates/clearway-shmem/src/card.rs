//! Describes each PE to all others when the job begins, and checks that they fit together.

use std::fs;
use std::net::Ipv4Addr;

use clearway_proto::base::ByteReader;
use clearway_wires::addresses;

use crate::memory;

/// What a card begins with.
const MAGIC: [u8; 8] = *b"cwshmem\x01";
/// The library's version; PEs of another one have other lines and other offsets.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Bytes of a name on a card.
const NAME: usize = 64;
/// Processors that a card can name.
const PROCESSORS: usize = 1_024;
/// Addresses of a host that a card can name.
const ADDRESSES: usize = 4;

/// One PE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) version: String,
    pub(crate) host: String,
    /// The machine's boot, the network namespace, the user, and the group of `SHMEM_NEAR`: PEs with
    /// the same share memory.
    ground: [u64; 4],
    /// Addresses of this host, 0 for none.
    addresses: [u64; ADDRESSES],
    /// The name of its entrance.
    pub(crate) entrance: u64,
    /// `SHMEM_SYMMETRIC_SIZE`, 0 without.
    pub(crate) heap_wish: u64,
    /// What all heaps of its host may take without.
    pub(crate) heap_room: u64,
    /// The length of its variables, 0 where they stay private, and its executable.
    pub(crate) statics: u64,
    pub(crate) build: u64,
    pub(crate) process: u64,
    /// The processors that it may use.
    processors: [u64; PROCESSORS / 64],
}

impl Card {
    /// Creates that of this process, which shares memory with those of the same `group`; the caller
    /// fills in what it knows.
    pub(crate) fn of_process(group: u64) -> Self {
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
            group,
        ];
        Self {
            version: VERSION.to_owned(),
            host: text("/proc/sys/kernel/hostname"),
            ground,
            addresses: own_addresses(),
            entrance: 0,
            heap_wish: 0,
            heap_room: 0,
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
        let numbers =
            [self.entrance, self.heap_wish, self.heap_room, self.statics, self.build, self.process];
        let lists = self.ground.iter().chain(&self.addresses).chain(&numbers);
        for number in lists.chain(&self.processors) {
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
        let ground = [number()?, number()?, number()?, number()?];
        let mut addresses = [0; ADDRESSES];
        for address in &mut addresses {
            *address = number()?;
        }
        let (entrance, heap_wish, heap_room) = (number()?, number()?, number()?);
        let (statics, build, process) = (number()?, number()?, number()?);
        let mut processors = [0; PROCESSORS / 64];
        for word in &mut processors {
            *word = number()?;
        }
        let card = Self {
            version,
            host,
            ground,
            addresses,
            entrance,
            heap_wish,
            heap_room,
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

    /// Whether the two run on one machine.
    fn is_same_machine(&self, other: &Self) -> bool {
        self.ground[0] == other.ground[0]
    }

    /// The addresses of its host.
    fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        let given = self.addresses.iter().filter_map(|address| u32::try_from(*address).ok());
        given.filter(|address| *address != 0).map(Ipv4Addr::from_bits)
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
        }
        Ok(Self(cards))
    }

    /// The PEs that share memory with PE `pe`, itself included, in the order of their numbers.
    pub(crate) fn near(&self, pe: usize) -> Vec<usize> {
        let is_near = |other: &usize| self.0[*other].is_near(&self.0[pe]);
        (0..self.0.len()).filter(is_near).collect()
    }

    /// For each PE the first PE of those that share memory with it.
    pub(crate) fn leaders(&self) -> Vec<usize> {
        let first = |card: &Card| self.0.iter().position(|other| other.is_near(card));
        self.0.iter().map(|card| first(card).unwrap_or_default()).collect()
    }

    /// Whether all PEs run on one machine.
    pub(crate) fn is_one_machine(&self) -> bool {
        self.0.iter().all(|card| card.is_same_machine(&self.0[0]))
    }

    /// Whether all PEs are in one network namespace: nobody can listen between them.
    pub(crate) fn is_one_namespace(&self) -> bool {
        self.0.iter().all(|card| card.ground[1] == self.0[0].ground[1])
    }

    /// The number of the job, which PE 0 drew.
    pub(crate) fn session(&self) -> u64 {
        self.0[0].entrance
    }

    /// PE `pe` for a person.
    pub(crate) fn name(&self, pe: usize) -> String {
        let host = self.0.get(pe).map_or("?", |card| card.host.as_str());
        format!("PE {pe} on host {host}")
    }

    /// The address of this host that the PEs of other hosts reach PE `me` at.
    ///
    /// # Errors
    /// The sentence for a host that has no way to another.
    pub(crate) fn address_of_host(&self, me: usize) -> Result<Ipv4Addr, String> {
        if self.is_one_machine() && self.is_one_namespace() {
            return Ok(Ipv4Addr::LOCALHOST);
        }
        let far = self.0.iter().filter(|card| !card.is_near(&self.0[me]));
        let peers: Vec<Ipv4Addr> = far.clone().flat_map(Card::addresses).collect();
        addresses::towards(&peers).ok_or_else(|| {
            let host = far.map(|card| card.host.as_str()).next().unwrap_or_default();
            format!(
                "host {} has no IPv4 address from which it reaches host {host}; give both hosts an address of a common network",
                self.0[me].host
            )
        })
    }

    /// The heap that all have.
    ///
    /// # Errors
    /// The sentence for PEs that request different ones.
    pub(crate) fn heap(&self) -> Result<usize, String> {
        let wish = self.0[0].heap_wish;
        if let Some(pe) = self.0.iter().position(|card| card.heap_wish != wish) {
            return Err(format!(
                "SHMEM_SYMMETRIC_SIZE is {wish} bytes for PE 0 and {} for PE {pe}; set the same for all",
                self.0[pe].heap_wish
            ));
        }
        if wish > 0 {
            return Ok(wish as usize);
        }
        let leaders = self.leaders();
        let share = |(card, leader): (&Card, &usize)| {
            let sharing = leaders.iter().filter(|other| *other == leader).count();
            memory::default_heap(card.heap_room, sharing)
        };
        Ok(self.0.iter().zip(&leaders).map(share).min().unwrap_or_default())
    }

    /// Whether all run the same executable and share its variables.
    pub(crate) fn share_statics(&self) -> bool {
        let first = &self.0[0];
        first.statics > 0
            && self.0.iter().all(|card| (card.statics, card.build) == (first.statics, first.build))
    }

    /// How many processors the PEs `near` have together.
    pub(crate) fn processors(&self, near: &[usize]) -> usize {
        let mut all = [0; PROCESSORS / 64];
        for pe in near {
            all.iter_mut().zip(self.0[*pe].processors).for_each(|(all, own)| *all |= own);
        }
        all.iter().map(|word| word.count_ones() as usize).sum::<usize>().max(1)
    }
}

/// The first addresses of this host.
fn own_addresses() -> [u64; ADDRESSES] {
    let mut own = [0; ADDRESSES];
    let found = addresses::of_host().unwrap_or_default();
    own.iter_mut().zip(found).for_each(|(to, found)| *to = found.address.to_bits().into());
    own
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
        let own = Card { heap_room: 64 << 20, statics: 8, ..Card::of_process(0) };
        let mut other = own.clone();
        change(&mut other);
        vec![own.bytes(), other.bytes()]
    }

    #[test]
    fn parse__a_card_comes_back_and_anything_else_does_not() {
        let card = Card { entrance: 5, heap_wish: 6, statics: 7, build: 8, ..Card::of_process(0) };
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
        let foreign = [Card::of_process(0).bytes(), b"else".to_vec()];
        assert!(
            Cards::parse(&foreign, 0)
                .unwrap_err()
                .starts_with("PE 1 uses another OpenSHMEM library")
        );
    }

    #[test]
    fn near__pes_of_other_hosts_namespaces_and_users_share_no_memory() {
        for at in 0..4 {
            let all = cards(|card| card.ground[at] += 1);
            let all = Cards::parse(&all, 0).expect("they fit");
            assert_eq!((all.near(0), all.near(1), all.leaders()), (vec![0], vec![1], vec![0, 1]));
            assert_eq!(all.is_one_machine(), at > 0);
        }
        let all = Cards::parse(&cards(|_| {}), 0).expect("they fit");
        assert_eq!((all.near(1), all.leaders()), (vec![0, 1], vec![0, 0]));
    }

    #[test]
    fn heap__is_the_wish_of_all_or_the_least_default() {
        let heap =
            |change: fn(&mut Card)| Cards::parse(&cards(change), 0).expect("they fit").heap();
        assert_eq!(heap(|card| card.heap_room = 40 << 20), Ok(20 << 20), "two share a host");
        assert_eq!(heap(|card| card.ground[1] += 1), Ok(64 << 20), "each has a host");
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
