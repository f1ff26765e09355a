"""Lists of English words the rules lean on; general vocabulary, one list a purpose."""

import re


def words_in(text: str) -> frozenset[str]:
    """Return the words of a list."""
    return frozenset(text.split())


def any_of(*words: str) -> str:
    """Return a pattern for any of these words or phrases, longest first."""
    return "(?:" + "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) + ")"


RELATIVES = any_of(
    *words_in(
        """sister brother mother father mom mum dad mommy daddy son daughter grandmother grandfather
        grandma grandpa granny aunt uncle cousin nephew niece grandson granddaughter stepmother
        stepfather stepson stepdaughter stepsister stepbrother mother-in-law father-in-law
        sister-in-law brother-in-law son-in-law daughter-in-law twin godmother godfather baby"""
    )
)
PARTNERS = any_of(
    *words_in("wife husband partner girlfriend boyfriend fiancé fiancée fiance fiancee spouse")
)
ACQUAINTANCES = any_of(
    *words_in(
        """friend boss manager colleague coworker co-worker neighbor neighbour roommate flatmate
        housemate teacher coach mentor therapist doctor dentist landlord supervisor tutor"""
    )
)
PETS = any_of(
    *words_in(
        """dog cat puppy kitten parrot rabbit hamster horse pony turtle tortoise goldfish canary
        guinea-pig ferret lizard gecko snake bird fish budgie cockatiel chicken goat poodle labrador
        beagle terrier spaniel retriever dachshund corgi husky bulldog pug collie greyhound"""
    ),
    "guinea pig",
    "golden retriever",
    "german shepherd",
)
NUMBERS = any_of(*words_in("a an one two three four five six seven eight nine ten several"), "some")
MONTHS = any_of(
    *words_in(
        """January February March April May June July August September October November December
        Jan Feb Mar Apr Jun Jul Aug Sept Sep Oct Nov Dec"""
    )
)
LANGUAGES = any_of(
    *words_in(
        """English Chinese Mandarin Cantonese Spanish French German Italian Portuguese Dutch Russian
        Japanese Korean Arabic Hindi Urdu Bengali Punjabi Tamil Telugu Turkish Greek Polish Czech
        Slovak Hungarian Romanian Bulgarian Ukrainian Swedish Norwegian Danish Finnish Icelandic
        Hebrew Persian Farsi Thai Vietnamese Indonesian Malay Tagalog Filipino Swahili Latin Catalan
        Basque Galician Welsh Irish Gaelic Croatian Serbian Slovenian Albanian Estonian Latvian
        Lithuanian Esperanto Afrikaans Amharic Yoruba Zulu ASL"""
    ),
    "sign language",
)
NATIONALITIES = words_in(
    """english chinese spanish french german italian portuguese dutch russian japanese korean arabic
    indian pakistani turkish greek polish czech slovak hungarian romanian bulgarian ukrainian
    swedish
    norwegian danish finnish icelandic israeli iranian thai vietnamese indonesian malaysian filipino
    kenyan nigerian ethiopian egyptian moroccan algerian tunisian american canadian mexican
    brazilian
    argentinian chilean peruvian colombian cuban australian swiss austrian belgian irish scottish
    welsh british european african asian latino latina taiwanese singaporean cantonese croatian
    serbian slovenian albanian estonian latvian lithuanian lebanese syrian iraqi afghan ghanaian"""
)
FAITHS = words_in(
    "buddhist christian catholic protestant orthodox muslim jewish hindu sikh atheist agnostic"
    " pacifist feminist"
)
JOBS = (
    r"(?:teacher|nurse|doctor|engineer|developer|programmer|designer|architect|lawyer|accountant"
    r"|chef|cook|baker|barista|waiter|waitress|bartender|driver|pilot|writer|author|journalist"
    r"|editor|translator|interpreter|photographer|painter|artist|musician|singer|actor|actress"
    r"|dancer|director|producer|manager|consultant|analyst|scientist|researcher|professor|lecturer"
    r"|tutor|librarian|carpenter|electrician|plumber|mechanic|farmer|gardener|florist|firefighter"
    r"|paramedic|policeman|officer|soldier|veteran|secretary|assistant|receptionist|salesperson"
    r"|salesman|cashier|entrepreneur|founder|freelancer|technician|administrator|surgeon|dentist"
    r"|vet|veterinarian|pharmacist|therapist|counsell?or|coach|trainer|hairdresser|barber|tailor"
    r"|butcher|fisherman|sailor|captain|guide|banker|broker|investor|trader|recruiter|marketer"
    r"|intern|apprentice|clerk|judge|politician|diplomat|priest|pastor|imam|rabbi|monk|nanny"
    r"|babysitter|cleaner|janitor|builder|welder|potter|sculptor|illustrator|animator|blogger"
    r"|youtuber|streamer|stay-at-home (?:mom|mum|dad|parent)|housewife|homemaker|head of [\w ]+"
    r"|\w+ologist|\w+ographer|\w+ician|economist|physicist|chemist|dietitian|optometrist"
    r"|physiotherapist|novelist|pianist|guitarist|violinist|cellist|drummer|cto|ceo|cfo)"
)
THINGS = (
    r"(?:car|bike|bicycle|motorbike|motorcycle|scooter|van|truck|boat|sailboat|house|apartment|flat"
    r"|condo|cottage|cabin|farm|garden|allotment|camera|piano|guitar|violin|laptop|computer|tablet"
    r"|phone|printer|telescope|sewing machine|coffee machine|espresso machine|3d printer|kindle"
    r"|e-reader|greenhouse|shop|store|café|cafe|restaurant|bakery|blog|podcast|channel|website)"
)
CONDITIONS = (
    r"(?:asthma|diabetes|arthritis|epilepsy|migraines?|insomnia|anxiety|depression|adhd|autism"
    r"|dyslexia|hypertension|high blood pressure|celiac disease|coeliac disease|eczema|psoriasis"
    r"|anemia|anaemia|scoliosis|tinnitus|vertigo|gout|cancer|a heart condition|a bad (?:back|knee)"
    r"|(?:chronic|back|knee|neck) pain|hay fever|ibs|crohn's(?: disease)?|color blindness"
    r"|colour blindness|osteoporosis|glaucoma|sleep apnea|a thyroid \w+|high cholesterol)"
)
DIETS = (
    r"(?:vegan|vegetarian|pescatarian|pescetarian|flexitarian|gluten[- ]free|dairy[- ]free|halal"
    r"|kosher|keto|paleo|low[- ]carb|lactose[- ]free|sugar[- ]free|plant[- ]based)"
)
FOODS = words_in(
    """meat pork beef chicken fish seafood shellfish dairy gluten sugar eggs nuts peanuts bread
    wheat
    milk cheese alcohol caffeine mushrooms onions garlic lamb shrimp lactose soy"""
)
CATEGORIES = {
    "drink": words_in(
        """tea coffee water juice beer wine milk cocoa chocolate espresso latte cappuccino matcha
        soda
        lemonade whisky whiskey gin rum vodka cider kombucha cola decaf chai drink drinks
    beverage"""
    ),
    "food": words_in(
        """food pizza pasta sushi noodles rice soup salad bread cake cakes dessert desserts curry
        cuisine dish dishes meal breakfast lunch dinner snack snacks fruit vegetables sandwich"""
    ),
    "color": words_in(
        """color colour red blue green yellow black white purple orange pink brown grey gray teal
        turquoise violet"""
    ),
    "music": words_in(
        "music jazz rock pop classical blues metal opera techno hip-hop rap song songs band"
        " singer musician composer album"
    ),
    "season": words_in("season spring summer autumn fall winter"),
    "movie": words_in("movie movies film films director actor actress comedies thrillers"),
    "book": words_in("book books novel novels author writer poet poem genre reading"),
    "sport": words_in("sport sports football soccer tennis basketball team player"),
}
HOBBIES = words_in(
    """painting drawing reading writing hiking swimming running jogging cycling cooking baking
    gardening photography dancing singing knitting sewing crocheting fishing climbing bouldering
    surfing skiing snowboarding skating sailing kayaking rowing camping traveling travelling
    birdwatching chess gaming yoga pilates meditation pottery ceramics woodworking origami
    calligraphy boxing karate judo football soccer basketball tennis badminton volleyball golf
    cricket rugby baseball hockey piano guitar violin drums cello flute ukulele sketching
    sculpting quilting embroidery astronomy archery fencing horseback skateboarding biking walking
    birding blogging programming coding magic theater theatre poetry"""
)
IRREGULAR_PAST = words_in(
    """was were had did went got made said told wrote left became began came ate drank felt kept
    knew
    gave heard held ran sold spent stood taught thought won wore fell flew drove spoke chose built
    caught sang swam lent sent woke saw met took found lost broke bought brought grew drew rode read
    put cut set let hit quit hurt slept understood forgot forgave paid led fed fought hung hid rang
    rose shook shot stole struck swore threw tore sought swept wept slid spun stuck"""
)
COMMON_STARTERS = words_in(
    """i we you he she it they this that these those there here what who when where why how which
    everyone everybody someone somebody anyone nobody everything nothing something today tomorrow
    yesterday life love music work time people one most many some all both each every yes no ok okay
    well now so but and or if because my your his her our their its the a an let please thanks thank
    hello hi hey good great sorry actually also then after before never always maybe perhaps another
    first second third last next only just even still google monday tuesday wednesday thursday
    friday
    saturday sunday january february march april may june july august september october november
    december god nature art reading writing painting cooking travel traveling being"""
)
GOAL_VERBS = (
    r"(?:learn|become|improve|lose|run|start|build|travel|visit|study|master|save|quit|stop|open|own"
    r"|live|work (?:as|in|at|abroad|for)|retire|adopt|publish|develop|create|pursue|speak|climb"
    r"|participate|compete|graduate|volunteer|get (?:married|promoted|fit|in shape|healthier|a \w+)"
    r"|buy a|move (?:to|abroad|out)|write (?:a|an|my)|be an?|eat (?:more|less|healthier|better)"
    r"|find a (?:new |better )?(?:job|career|hobby|partner|apartment|house|flat)"
    r"|change (?:my )?(?:job|jobs|career|careers)|read more|exercise|finish|complete|qualify"
    r"|see the|explore|take up|set up|launch|record an?|perform|teach|help|raise|make a living)"
)
