//! Archives: any bytes are read alike however they are cut, and what was read is written as it was.

#![no_main]

use std::convert::Infallible;

use clearway_proto::archive::{
    ArchiveError, InspectionSummary, Inspector, Item, Limits, Parsed, Reader, Remainder, Writer,
};
use libfuzzer_sys::fuzz_target;

/// Longer than any input, so that only lengths that lie are refused.
const LIMITS: Limits = Limits { item_bytes: 1 << 20 };

type ReadOutcome = (Result<Remainder, ArchiveError>, InspectionSummary, Vec<u8>);

/// Reads `bytes` in pieces of `length` and writes what was read.
fn read(bytes: &[u8], length: usize) -> ReadOutcome {
    let mut reader = Reader::new(LIMITS);
    let (mut inspector, mut writer, mut again) = (Inspector::default(), None, Vec::new());
    for mut piece in bytes.chunks(length) {
        loop {
            match reader.feed(&mut piece) {
                Ok(None) => break,
                Ok(Some(Parsed::Header)) => {
                    again = Writer::new(reader.header().expect("it is whole")).1
                }
                Ok(Some(Parsed::Item)) => {
                    let header = reader.header().expect("it came first");
                    let item = reader.item().expect("it is whole");
                    inspector.look(&item, header.versions);
                    let writer = writer.get_or_insert_with(|| Writer::new(header).0);
                    let mut put = |bytes: &[u8]| {
                        again.extend_from_slice(bytes);
                        Ok::<(), Infallible>(())
                    };
                    let Ok(()) = match item {
                        Item::Microslice(microslice) => writer.microslice(&microslice, &mut put),
                        Item::Timeslice(timeslice) => writer.timeslice(
                            &timeslice.descriptor,
                            timeslice.components(),
                            &mut put,
                        ),
                    };
                }
                Err(error) => return (Err(error), inspector.tally().clone(), again),
            }
        }
    }
    (Ok(reader.rest()), inspector.tally().clone(), again)
}

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes, usize::MAX);
    assert!(bytes.starts_with(&whole.2));
    let length = bytes.last().map_or(1, |last| usize::from(*last) + 1);
    assert_eq!(read(bytes, length), whole);
});
