//! What strangers may tell a rank that builds timeslices: the corpus from which
//! `fuzz/targets/timeslice_node.rs` begins, and ten thousand strings near it.

mod feed;

use clearway_proto::base::RandomKey;

/// Headers that make sense, from which others come by changing bytes: one of each kind, as `from`,
/// header.
const SENSIBLE: &[(u8, &[u8])] = &[
    (0, &[1, 0, 0, 0, 0]),
    (3, &[2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
    (3, &[3, 0, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0]),
    (0, &[4, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]),
    (3, &[5, 0, 0, 0, 0]),
    (0, &[7, 0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]),
    (3, &[8, 2, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]),
    (0, &[9, 7, 0, 0, 0, 0, 0, 0, 0]),
    (3, &[10, 7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]),
    (0, &[11, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]),
    (0, &[12, 0, 0, 0, 0, 1]),
    (1, &[16, 0, 0, 0, 0]),
    (1, &[17, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0]),
    (1, &[18, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]),
    (
        1,
        &[
            19, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 4, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 30, 0,
            0, 0, 0, 0, 0, 0,
        ],
    ),
    (1, &[20, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
    (1, &[21, 0, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0]),
    (1, &[22, 1, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0]),
    (1, &[22, 1, 0, 0, 0, 2, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0]),
    (1, &[22, 2, 0, 0, 0, 1, 3, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 80, 0, 0, 0, 0, 0, 0, 0]),
    (4, &[23, 0, 0, 0, 0, 2, 4, 0, 0, 0, 1, 0, 0, 0]),
    (2, &[23, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]),
];

/// A rank that begins with `first` hears all of them, some time apart; `change` may change each.
fn story(first: u8, mut change: impl FnMut(&mut Vec<u8>)) -> Vec<u8> {
    let mut story = vec![first];
    for (from, header) in SENSIBLE {
        let mut header = header.to_vec();
        change(&mut header);
        story.extend([2, *from, header.len() as u8]);
        story.extend(header);
        story.extend([1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 30]);
    }
    story
}

#[test]
fn run__sensible_headers_in_order_to_every_rank_under_every_policy() {
    (0..25).for_each(|first| feed::run(&story(first, |_| {})));
}

#[test]
fn run__headers_with_bytes_changed_and_in_other_orders() {
    let mut stream = RandomKey::new(1).purpose("strangers").stream();
    for _ in 0..10_000 {
        let first = stream.below(25) as u8;
        let mut bytes = story(first, |header| {
            for _ in 0..stream.below(3) {
                let at = stream.below(header.len() as u64) as usize;
                header[at] = [0, 1, 2, 3, 4, 22, 127, 255][stream.below(8) as usize];
            }
        });
        let cut = 1 + stream.below(bytes.len() as u64 - 1) as usize;
        // A part of the story again, or what is no story at all.
        let again = bytes[cut..].to_vec();
        bytes.extend(again);
        feed::run(&bytes);
    }
}
