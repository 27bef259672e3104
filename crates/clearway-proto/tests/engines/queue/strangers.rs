//! What strangers may send to a rank with far operations: the corpus from which
//! `fuzz/targets/queue_messages.rs` begins, and thousands of strings near it.

use clearway_proto::base::{RandomKey, RandomStream};

use super::feed;

/// Batches that make sense: a run of two additions of one, two words, a put, a strided put, two
/// gets of words, a get, data, a swap and a compare-and-swap that are fetched, an answer.
const RECORDS: &[&[u8]] = &[
    &[0x12, 0x17, 2, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0],
    &[1, 4, 2, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 2],
    &[2, 4, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 8, 9],
    &[3, 5, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 248, 255, 255, 255, 255, 255, 255, 255, 1, 0, 2, 0],
    &[5, 7, 2, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0],
    &[4, 4, 5, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0],
    &[6, 0, 2, 0, 0, 0, 0, 0, 1, 2],
    &[0x21, 6, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 9, 9, 0, 0],
    &[0x26, 6, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 9, 9, 0, 0, 1, 0, 0, 0],
    &[8, 1, 2, 0, 3, 0, 0, 0, 5, 0, 6, 0],
    &[7, 0, 3, 0, 4, 0, 0, 0, 1, 2, 3],
];

/// Bytes of the fields of a header: kind, flags, number, applied, released.
const HEADERS: &[[u8; 5]] = &[
    [1, 0, 1, 0, 0],
    [1, 3, 2, 0, 0],
    [1, 2, 3, 1, 1],
    [2, 0, 1, 2, 1],
    [2, 4, 2, 2, 2],
    [3, 1, 0, 3, 2],
    [4, 2, 3, 3, 3],
];

fn header([kind, flags, number, applied, released]: [u8; 5]) -> Vec<u8> {
    let mut head = vec![0x51, kind, 3, flags];
    for number in [number, applied, released] {
        head.extend(u64::from(number).to_le_bytes());
    }
    if kind == 4 {
        head.extend([1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0]);
    }
    head
}

fn records(mut change: impl FnMut(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![0];
    for record in RECORDS {
        let mut record = record.to_vec();
        change(&mut record);
        bytes.extend(record);
    }
    bytes
}

fn headers(first: u8, mut change: impl FnMut(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![1, first];
    for (fields, from) in HEADERS.iter().zip([1, 1, 1, 1, 2, 2, 1]) {
        let mut head = header(*fields);
        change(&mut head);
        bytes.extend([1, from, head.len() as u8]);
        bytes.extend(head);
        bytes.extend([0, 0, 9]);
    }
    bytes
}

fn change_some(stream: &mut RandomStream, bytes: &mut [u8]) {
    for _ in 0..stream.below(3) {
        let at = stream.below(bytes.len() as u64) as usize;
        bytes[at] = [0, 1, 2, 3, 4, 16, 127, 255][stream.below(8) as usize];
    }
}

#[test]
fn run__sensible_records_and_headers() {
    feed::run(&records(|_| {}));
    (0..2).for_each(|first| feed::run(&headers(first, |_| {})));
}

#[test]
fn run__records_and_headers_with_bytes_changed_and_cut() {
    let mut stream = RandomKey::new(1).purpose("strangers").stream();
    for _ in 0..10_000 {
        let mut bytes = if stream.below(2) == 0 {
            records(|record| change_some(&mut stream, record))
        } else {
            headers(stream.below(2) as u8, |head| change_some(&mut stream, head))
        };
        let cut = 1 + stream.below(bytes.len() as u64 - 1) as usize;
        let again = bytes[cut..].to_vec();
        bytes.extend(again);
        feed::run(&bytes);
    }
}
