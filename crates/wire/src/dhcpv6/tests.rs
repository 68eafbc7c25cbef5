use super::*;
use proptest::prelude::*;

#[test]
fn an_advertise_is_read_as_it_was_written() {
    let delegation = Delegation {
        iaid: 7,
        t1: 300,
        t2: 480,
        prefixes: vec![DelegatedPrefix {
            prefix: "2001:db8:100::".parse().unwrap(),
            prefix_length: 56,
            preferred_lifetime: 600,
            valid_lifetime: 1_200,
        }],
        status: StatusCode::Success,
    };
    let servers = ["2001:db8::53".parse().unwrap()];
    let bytes = Builder::new(MessageType::Advertise, [1, 2, 3])
        .client_id(&[0, 3, 0, 1])
        .server_id(&[0, 4])
        .preference(9)
        .delegation(&delegation)
        .dns_servers(&servers)
        .finish();
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(message.message_type(), MessageType::Advertise);
    assert_eq!(message.transaction(), [1, 2, 3]);
    assert_eq!((message.client_id(), message.server_id()), (Some(&[0, 3, 0, 1][..]), Some(&[0, 4][..])));
    assert_eq!((message.preference(), message.rapid_commit()), (9, false));
    assert_eq!(message.delegation(7), Some(delegation));
    assert_eq!(message.delegation(8), None);
    assert_eq!(message.dns_servers().collect::<Vec<_>>(), servers);
    assert_eq!(message.status(), StatusCode::Success);
}

#[test]
fn a_refusal_is_in_the_delegation() {
    let refused =
        Delegation { iaid: 1, t1: 0, t2: 0, prefixes: Vec::new(), status: StatusCode::NoPrefixAvail };
    let bytes = Builder::new(MessageType::Reply, [0; 3]).delegation(&refused).finish();
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(message.delegation(1), Some(refused));
    assert_eq!(message.status(), StatusCode::Success);
}

#[test]
fn a_remark_is_that_of_the_ia_or_of_the_message_and_fit_for_a_terminal() {
    let refused =
        Delegation { iaid: 1, t1: 0, t2: 0, prefixes: Vec::new(), status: StatusCode::NoPrefixAvail };
    let words = "no\u{1b}[31m contract\n";
    let bytes = Builder::new(MessageType::Reply, [0; 3])
        .delegation(&refused)
        .status(StatusCode::UnspecFail, words)
        .finish();
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(message.remark(1), (StatusCode::NoPrefixAvail, String::new()));
    assert_eq!(message.remark(2), (StatusCode::UnspecFail, "no[31m contract".to_owned()));
    let bytes = Builder::new(MessageType::Reply, [0; 3]).status(StatusCode::Success, &"ä".repeat(500));
    let (status, words) = Message::parse(&bytes.finish()).unwrap().remark(1);
    assert_eq!((status, words.chars().count()), (StatusCode::Success, LONGEST_REMARK));
}

#[test]
fn addresses_and_prefixes_of_one_message_are_read_apart() {
    let assignment = Assignment {
        iaid: 3,
        t1: 10,
        t2: 20,
        addresses: vec![AssignedAddress {
            address: "2001:db8::5".parse().unwrap(),
            preferred_lifetime: 30,
            valid_lifetime: 40,
        }],
        status: StatusCode::Success,
    };
    let refused =
        Assignment { iaid: 4, addresses: Vec::new(), status: StatusCode::NoAddrsAvail, ..assignment.clone() };
    let delegation =
        Delegation { iaid: 3, t1: 0, t2: 0, prefixes: Vec::new(), status: StatusCode::NoPrefixAvail };
    let bytes = Builder::new(MessageType::Reply, [0; 3])
        .assignment(&assignment)
        .delegation(&delegation)
        .assignment(&refused)
        .finish();
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(message.assignments().collect::<Vec<_>>(), [assignment, refused]);
    assert_eq!(message.delegations().collect::<Vec<_>>(), [delegation]);
    assert!(!message.requests_dns_servers());
    let bytes = Builder::new(MessageType::InformationRequest, [0; 3]).option_request(false).finish();
    assert!(Message::parse(&bytes).unwrap().requests_dns_servers());
}

#[test]
fn a_name_of_an_aftr_is_one_whole_name() {
    let read = |contents: &[u8]| {
        let bytes = Builder::new(MessageType::Reply, [0; 3]).option(code::AFTR_NAME, contents).finish();
        Message::parse(&bytes).unwrap().aftr_name()
    };
    assert_eq!(read(b"\x04aftr\x07example\0").as_deref(), Some("aftr.example"));
    for wrong in [&b""[..], b"\0", b"\x04aftr", b"\x09aftr\0", b"\x04aftr\0\0", b"\x04a\x1bft\0", b"\xc0\x0c"]
    {
        assert_eq!(read(wrong), None, "{wrong:?}");
    }
    assert_eq!(read(&[&[64][..], &[b'a'; 64], &[0]].concat()), None);
    let long = [&[63][..], &[b'a'; 63]].concat().repeat(4);
    assert_eq!(read(&[&long[..], &[0]].concat()), None, "257 octets");
}

proptest! {
    #[test]
    fn a_name_of_an_aftr_is_read_as_it_was_written(name in "[a-z0-9_-]{1,20}(\\.[a-zA-Z0-9]{1,20}){0,5}") {
        let bytes = Builder::new(MessageType::Reply, [0; 3]).aftr_name(&name).finish();
        prop_assert_eq!(Message::parse(&bytes).unwrap().aftr_name(), Some(name));
    }

    #[test]
    fn any_name_of_an_aftr_is_read_or_left_out(contents in proptest::collection::vec(any::<u8>(), 0..300)) {
        let bytes = Builder::new(MessageType::Reply, [0; 3]).option(code::AFTR_NAME, &contents).finish();
        let name = Message::parse(&bytes).unwrap().aftr_name();
        prop_assert!(name.is_none_or(|name| name.len() < contents.len()));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..12u8) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        if let Ok(message) = Message::parse(&bytes) {
            let _ = (message.client_id(), message.preference(), message.status(), message.dns_servers().count());
            let _ = (message.delegation(0), message.remark(0), message.longest_solicit_interval());
            let _ = (message.delegations().count(), message.assignments().count(), message.aftr_name());
        }
    }

    #[test]
    fn any_ia_is_read_or_left_out(contents in proptest::collection::vec(any::<u8>(), 12..120)) {
        let bytes = Builder::new(MessageType::Reply, [0; 3]).option(code::IA_PD, &contents).finish();
        let _ = Message::parse(&bytes).unwrap().delegation(u32_at(&contents, 0));
    }
}
