/**
 * Modules of CPython's regression tests (Debian's libpython3.11-testsuite) that run on both sides.
 *
 * Not in the list is what needs something that a sandbox does not give on purpose:
 * - a network: asyncio, asynchat, asyncore, docxmlrpc, eintr, epoll, ftplib, httplib, httpservers, imaplib,
 *   logging, nntplib, poplib, robotparser, smtpd, smtplib, smtpnet, socket, socketserver, ssl, telnetlib,
 *   timeout, urllib_response, urllib2_localnet, urllib2net, urllibnet, wsgiref, xmlrpc, xmlrpc_net;
 * - a terminal or display: curses, idle, ioctl, openpty, ossaudiodev, pty, tcl, tix, tk, ttk, turtle;
 * - gigabytes of disk or memory: bigaddrspace, largefile, zipfile64;
 * - another system (launcher, msilib, winreg and the like) or a source tree of CPython (clinic,
 *   peg_generator, tools and the like), and ensurepip, which Debian breaks;
 * - and concurrent_futures and multiprocessing_*, which take minutes each: programs/processes.py and
 *   multiprocessing_main_handling stand for them.
 */

/** All of them. */
export const FULL_MODULES = modules(`
  __all__ __future__ _locale _opcode _xxsubinterpreters abc abstract_numbers aifc argparse
  array ast asyncgen atexit audioop audit augassign base64 baseexception bdb bigmem binascii
  binop bisect bool buffer bufio builtin bytes bz2 c_locale_coercion calendar call cgi cgitb
  charmapcodec class cmath cmd cmd_line cmd_line_script code code_module codeccallbacks
  codecencodings_cn codecencodings_hk codecencodings_iso2022 codecencodings_jp
  codecencodings_kr codecencodings_tw codecmaps_cn codecmaps_hk codecmaps_jp codecmaps_kr
  codecmaps_tw codecs codeop collections colorsys compare compile compileall complex
  configparser contains context contextlib contextlib_async copy copyreg coroutines cprofile
  crashers crypt csv ctypes dataclasses datetime dbm dbm_dumb dbm_ndbm decimal decorators
  defaultdict deque descr descrtut dict dict_version dictcomps dictviews difflib dis distutils
  doctest doctest2 dynamic dynamicclassattribute email embed enum enumerate eof errno
  except_star exception_group exception_hierarchy exception_variations exceptions extcall
  faulthandler fcntl file file_eintr filecmp fileinput fileio fileutils finalization float
  flufl fnmatch fork1 format fractions frame frozen fstring funcattrs functools future future3
  future4 future5 gc generator_stop generators genericalias genericclass genericpath genexps
  getopt getpass getpath gettext glob global grammar graphlib grp gzip hash hashlib heapq hmac
  html htmlparser http_cookiejar http_cookies imghdr imp import importlib index inspect int
  int_literal interpreters io ipaddress isinstance iter iterlen itertools json keyword
  keywordonlyarg lib2to3 linecache list listcomps lltrace locale long longexp lzma mailbox
  mailcap marshal math memoryio memoryview metaclass mimetypes minidom mmap module
  modulefinder multibytecodec multiprocessing_main_handling named_expressions netrc ntpath
  numeric_tower opcache opcodes operator optparse ordered_dict os pathlib patma pdb peepholer
  pep646_syntax pickle picklebuffer pickletools pipes pkg pkgutil platform plistlib poll popen
  positional_only_arg posix posixpath pow pprint print profile property pstats pulldom pwd
  py_compile pyclbr pydoc pyexpat queue quopri raise random range re readline repl reprlib
  resource richcmp rlcompleter runpy sax sched scope script_helper secrets select selectors
  set setcomps shelve shlex shutil signal site slice sndhdr sort source_encoding spwd
  stable_abi_ctypes stat statistics strftime string string_literals stringprep strptime strtod
  struct structseq subclassinit subprocess sunau sundry super support symtable syntax sys
  sys_setprofile sys_settrace sysconfig syslog tabnanny tarfile tempfile textwrap thread
  threadedtempfile threading threading_local threadsignals time timeit tokenize trace
  traceback tracemalloc tuple type_annotations type_cache type_comments typechecks types
  typing ucn unary unicode unicode_file unicode_file_functions unicode_identifiers unicodedata
  unittest univnewlines unpack unpack_ex unparse urllib urllib2 urlparse userdict userlist
  userstring utf8_mode utf8source uu uuid venv wait3 wait4 warnings wave weakref weakset
  webbrowser with xdrlib xml_dom_minicompat xml_etree xml_etree_c xxlimited xxtestfuzz
  yield_from zipapp zipfile zipimport zipimport_support zlib zoneinfo
`);

/** Those of `make test`: quick ones, and close to the kernel. */
export const SAMPLE_MODULES = modules(`
  __all__ array asyncgen bufio contextlib copy csv ctypes dataclasses dbm_dumb dict eof errno
  fcntl file file_eintr filecmp fileio fork1 functools gc getpass glob grp gzip hashlib heapq
  itertools json locale marshal math memoryview mmap netrc operator os pathlib pickletools
  pipes platform popen posix posixpath pprint pwd re resource sched select shelve shlex site
  spwd stat struct sys_setprofile syslog tempfile thread threadedtempfile threading_local
  timeit unicode_file urlparse uuid wait3 wait4
`);

function modules(text: string): readonly string[] {
  return text
    .trim()
    .split(/\s+/)
    .map((name) => `test_${name}`);
}
