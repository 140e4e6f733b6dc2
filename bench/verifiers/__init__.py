"""DKIM verifiers of others: each is given files and the records of the keys, and returns a verdict for each signature that it has checked.

VERIFIERS has all of them, INSTALLED those that `make test` installs. testing/install.sh --peers installs the others.
"""

from verifiers.opendkim import OpenDkim
from verifiers.programs import Dkimpy, GoMsgauth, MailDkim, Mailauth
from verifiers.rspamd import Rspamd

INSTALLED = (Dkimpy, OpenDkim, MailDkim)
VERIFIERS = (*INSTALLED, Rspamd, Mailauth, GoMsgauth)
