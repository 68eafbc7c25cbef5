//! Whole packets of the RFCs: what another implementation has sealed opens to what the text says that it was.

use super::*;

fn bytes(text: &str) -> Vec<u8> {
    hex::decode(text.replace(char::is_whitespace, "")).unwrap()
}

/// A sample packet of RFC 3602 §4.
struct Case {
    key: &'static str,
    spi: u32,
    destination: [u8; 4],
    /// All of the packet before it was protected, but its outer header in tunnel mode.
    original: &'static str,
    mode: Mode,
    /// The outer header, SPI and number, IV, and what is hidden.
    sealed: &'static str,
}

const CASES: [Case; 4] = [
    // Case 5.
    Case {
        key: "90d382b4 10eeba7a d938c46c ec1a82bf",
        spi: 0x4321,
        destination: [192, 168, 123, 100],
        original: "45000054 08f20000 4001f9fe c0a87b03 c0a87b64
            08000ebd a70a0000 8e9c083d b95b0700 08090a0b 0c0d0e0f 10111213 14151617
            18191a1b 1c1d1e1f 20212223 24252627 28292a2b 2c2d2e2f 30313233 34353637",
        mode: Mode::Transport,
        sealed: "4500007c 08f20000 4032f9a5 c0a87b03 c0a87b64 00004321 00000001
            e96e8c08 ab465763 fd098d45 dd3ff893
            f663c25d 325c18c6 a9453e19 4e120849 a4870b66 cc6b9965 330013b4 898dc856
            a4699e52 3a55db08 0b59ec3a 8e4b7e52 775b07d1 db34ed9c 538ab50c 551b874a
            a269add0 47ad2d59 13ac19b7 cfbad4a6",
    },
    // Case 6.
    Case {
        key: "90d382b4 10eeba7a d938c46c ec1a82bf",
        spi: 0x4321,
        destination: [192, 168, 123, 100],
        original: "45000030 08fe0000 4001fa16 c0a87b03 c0a87b64
            0800b5e8 a80a0500 a69c083d 0b660e00 77777777 77777777 77777777",
        mode: Mode::Transport,
        sealed: "4500004c 08fe0000 4032f9c9 c0a87b03 c0a87b64 00004321 00000008
            69d08df7 d203329d b093fc49 24e5bd80
            f5199588 1ec4e0c4 488987ce 742e8109 689bb379 d2d750c0 d915dca3 46a89f75",
    },
    // Case 7.
    Case {
        key: "01234567 89abcdef 01234567 89abcdef",
        spi: 0x8765,
        destination: [192, 168, 123, 200],
        original: "45000054 09040000 4001f988 c0a87b03 c0a87bc8
            08009f76 a90a0100 b49c083d 02a20400 08090a0b 0c0d0e0f 10111213 14151617
            18191a1b 1c1d1e1f 20212223 24252627 28292a2b 2c2d2e2f 30313233 34353637",
        mode: Mode::Tunnel,
        sealed: "4500008c 09050000 4032f91e c0a87b03 c0a87bc8 00008765 00000002
            f4e76524 4f6407ad f13dc138 0f673f37
            773b5241 a4c44922 5e4f3ce5 ed611b0c 237ca96c f74a9301 3c1b0ea1 a0cf70f8
            e4ecaec7 8ac53aad 7a0f022b 859243c6 47752e94 a859352b 8a4d4d2d ecd136e5
            c177f132 ad3fbfb2 201ac990 4c74ee0a 109e0ca1 e4dfe9d5 a100b842 f1c22f0d",
    },
    // Case 8.
    Case {
        key: "01234567 89abcdef 01234567 89abcdef",
        spi: 0x8765,
        destination: [192, 168, 123, 200],
        original: "45000044 090c0000 4001f990 c0a87b03 c0a87bc8 0800d63c aa0a0200 c69c083d
            a3de0300 ffffffff ffffffff ffffffff ffffffff
            ffffffff ffffffff ffffffff ffffffff",
        mode: Mode::Tunnel,
        sealed: "4500007c 090d0000 4032f926 c0a87b03 c0a87bc8 00008765 00000005
            85d47224 b5f3dd5d 2101d4ea 8dffab22
            15b92683 819596a8 047232cc 00f7048f e45318e1 1f8a0f62 ede3c3fc 61203bb5
            0f980a08 c9843fd3 a1b06d5c 07ff9639 b7eb7dfb 3512e5de 435e7207 ed971ef3
            d2726d9b 5ef6affc 6d17a0de cbb13892",
    },
];

/// The samples have no ICV, without which nothing is opened here: each gets one behind its last byte.
#[test]
fn the_sample_packets_of_rfc_3602_section_4_open_to_the_original_ones() {
    for (number, case) in (5..).zip(CASES) {
        let mut arrived = bytes(case.sealed);
        let hmac = AhTransform::new(Authentication::HmacSha256, &Key::new(&[7; 32])).unwrap();
        let icv = hmac.icv(&[], &[&arrived[20..]]);
        arrived.extend(icv.bytes());
        let place = crate::headers::Place { offset: 20, type_at: 9, protocol: protocol::ESP };
        crate::headers::set_type_and_length(&mut arrived, place, protocol::ESP);
        let mut pair = Pair::new(|| parameters_of(&case));
        let (opened, marks) = pair.open(&arrived).unwrap();
        assert_eq!(hex::encode(&opened), hex::encode(bytes(case.original)), "case {number}");
        assert!(marks.authentic && marks.decrypted != marks.decrypted_from_tunnel);
        // The padding is no longer than it must be, as in the sample.
        assert_eq!(pair.seal(&opened).unwrap().len(), arrived.len(), "case {number}");
    }
}

fn parameters_of(case: &Case) -> Parameters {
    let cipher_key = Key::new(&bytes(case.key));
    let hmac_key = Key::new(&[7; 32]);
    let transform =
        EspTransform::new(Encryption::AesCbc128, &cipher_key, Authentication::HmacSha256, &hmac_key).unwrap();
    let (source, destination) = (IpAddr::from([192, 168, 123, 3]), case.destination.into());
    Parameters::new(Spi(case.spi), source, destination, case.mode, Transform::Esp(transform))
}
