use linux::echo::EchoSocket;
use linux::netns;

use crate::network::{A, B, LINK, Pair, eventually};

#[test]
fn a_host_answers_and_one_that_is_not_there_does_not() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    pair.a.run(|| {
        let socket = EchoSocket::open(LINK, 0x5151).unwrap();
        let other = EchoSocket::open(LINK, 0x5252).unwrap();
        assert!(socket.send(B, None, 7).unwrap());
        assert_eq!(eventually(|| socket.recv().unwrap()), (B, 7));
        assert_eq!(other.recv().unwrap(), None, "it is the other one's reply");
        assert!(!socket.send("2001:db8:ffff::1".parse().unwrap(), None, 8).unwrap(), "there is no way");
        assert!(socket.send(B, Some(A), 9).unwrap());
        assert_eq!(eventually(|| socket.recv().unwrap()), (B, 9));
        assert!(!socket.send(B, Some("2001:db8:ffff::1".parse().unwrap()), 10).unwrap(), "not of this host");
    });
}
