//! Archives: any bytes are read alike however they are cut, and what was read is written as it was.

#![no_main]

use std::convert::Infallible;

use clearway_proto::archive::{
    ArchiveError, Event, Header, Inspector, Item, Limits, Reader, Rest, Tally, Versions, Writer,
};
use libfuzzer_sys::fuzz_target;

/// Longer than any input, so that only lengths that lie are refused.
const LIMITS: Limits = Limits { item_bytes: 1 << 20 };

type Outcome = (Result<Rest, ArchiveError>, Versions, Tally, Vec<u8>);

/// Reads `bytes` in pieces of `piece` and writes what was read in `versions`.
fn read(bytes: &[u8], piece: usize, versions: Versions) -> Outcome {
    let mut reader = Reader::new(LIMITS);
    let (mut inspector, mut writer, mut again, mut last) = (Inspector::default(), None, Vec::new(), versions);
    for mut piece in bytes.chunks(piece) {
        loop {
            let mut put = |bytes: &[u8]| {
                again.extend_from_slice(bytes);
                Ok::<(), Infallible>(())
            };
            match reader.feed(&mut piece) {
                Ok(None) => break,
                Ok(Some(Event::Header(header))) => {
                    let Versions { timeslice, component, .. } = versions;
                    let versions = Versions { timeslice, component, ..header.versions };
                    let (made, bytes) = Writer::new(&Header { versions, ..header.clone() });
                    let Ok(()) = put(&bytes);
                    writer = Some(made);
                }
                Ok(Some(Event::Item(item, versions))) => {
                    inspector.look(&item, versions);
                    last = versions;
                    let writer = writer.as_mut().expect("the header comes first");
                    let Ok(()) = match item {
                        Item::Microslice(microslice) => writer.microslice(&microslice, &mut put),
                        Item::Timeslice(timeslice) => {
                            writer.timeslice(&timeslice.descriptor, timeslice.components(), &mut put)
                        }
                    };
                }
                Err(error) => return (Err(error), last, inspector.tally().clone(), again),
            }
        }
    }
    (Ok(reader.rest()), last, inspector.tally().clone(), again)
}

fuzz_target!(|bytes: &[u8]| {
    // The version of components is known only when there was one.
    let (_, versions, ..) = read(bytes, usize::MAX, Versions::NEWEST);
    let whole = read(bytes, usize::MAX, versions);
    assert!(bytes.starts_with(&whole.3));
    let piece = bytes.last().map_or(1, |last| usize::from(*last) + 1);
    assert_eq!(read(bytes, piece, versions), whole);
});
